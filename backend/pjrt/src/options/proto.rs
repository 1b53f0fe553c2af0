//! Just enough of protobuf's wire format to write options, and to find one field in what a plugin wrote.

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

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

/// The value of a field found by [`find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Varint(_) => None,
        }
    }
}

/// The first field of this number; `None` where there is none, or the bytes are no message.
pub(super) fn find(mut message: &[u8], wanted: u32) -> Option<Field<'_>> {
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let value = match tag & 7 {
            VARINT => Field::Varint(take_varint(&mut message)?),
            LENGTH => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                Field::Bytes(message.split_off(..length)?)
            }
            FIXED64 => Field::Bytes(message.split_off(..8)?),
            FIXED32 => Field::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        if tag >> 3 == u64::from(wanted) {
            return Some(value);
        }
    }
    None
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_walks_over_every_wire_type() {
        let mut message = Message::default();
        message.int(1, -1);
        message.double(3, 1.0);
        message.bytes(2, b"hi");
        message.int(500, 300);
        let mut bytes = vec![0x25, 0, 0, 0, 0]; // field 4, four bytes
        bytes.extend(message.into_bytes());
        assert_eq!(find(&bytes, 2), Some(Field::Bytes(b"hi")));
        assert_eq!(find(&bytes, 500), Some(Field::Varint(300)));
        assert_eq!(find(&bytes, 7), None);
        assert_eq!(find(&bytes[..bytes.len() - 1], 500), None);
    }

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
            &[
                0xa0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
            &[0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ]
        .concat();
        assert_eq!(message.into_bytes(), expected);
    }
}
