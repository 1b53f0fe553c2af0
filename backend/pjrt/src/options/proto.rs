//! Just enough of protobuf's wire format to write options.

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

/// A message in the making. Fields are written even where they equal the default: presence matters to XLA.
#[derive(Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    /// An `int32`, `int64` or enum.
    pub(super) fn int(&mut self, field: u32, value: i64) {
        self.tag(field, VARINT);
        self.varint(value.cast_unsigned());
    }

    pub(super) fn bool(&mut self, field: u32, value: bool) {
        self.int(field, i64::from(value));
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A string, bytes, or packed numbers.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn message(&mut self, field: u32, value: &Self) {
        self.bytes(field, &value.bytes);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_format() {
        let mut message = Message::default();
        message.int(1, 150);
        message.bytes(2, b"hi");
        message.int(500, -1);
        message.double(3, 1.0);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 2, b'h', b'i'],
            &[0xa0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ]
        .concat();
        assert_eq!(message.into_bytes(), expected);
    }
}
