"""Small models and their inputs, for parity with the CPU. Dropout is 0 everywhere."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Loss = Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Cnn(nn.Module):
    """For scikit-learn's digits: 8x8 grey images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        self.head = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """As large as nanoGPT's smallest: token and position embeddings, tied head."""

    def __init__(
        self, vocabulary: int = 65, context: int = 64, width: int = 128, depth: int = 4, heads: int = 4
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _classify(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"]), batch["y"])


def _next_token(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())


def _own_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).loss


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)


def _mlp() -> tuple[nn.Module, dict[str, torch.Tensor], Loss]:
    return Mlp(), {"x": torch.randn(64, 32), "y": torch.randint(10, (64,))}, _classify


def _cnn() -> tuple[nn.Module, dict[str, torch.Tensor], Loss]:
    images, labels = _digits()
    return Cnn(), {"x": images[:64], "y": labels[:64]}, _classify


def _decoder() -> tuple[nn.Module, dict[str, torch.Tensor], Loss]:
    ids = torch.randint(65, (4, 65))
    return Decoder(), {"x": ids[:, :-1], "y": ids[:, 1:]}, _next_token


def _bert() -> tuple[nn.Module, dict[str, torch.Tensor], Loss]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=300,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    ids = torch.randint(300, (4, 32))
    mask = torch.ones(4, 32, dtype=torch.long)
    mask[1, 20:] = 0
    return BertForMaskedLM(config), {"input_ids": ids, "attention_mask": mask, "labels": ids}, _own_loss


def _gpt2() -> tuple[nn.Module, dict[str, torch.Tensor], Loss]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=300, n_positions=64, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    ids = torch.randint(300, (4, 32))
    return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}, _own_loss


MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, torch.Tensor], Loss]]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "decoder": _decoder,
    "bert": _bert,
    "gpt2": _gpt2,
}


def make(name: str) -> tuple[nn.Module, dict[str, torch.Tensor], Loss]:
    """(model on the CPU, batch on the CPU, loss function), always the same."""
    torch.manual_seed(1234)
    return MODELS[name]()


def moved(batch: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {key: value.to(device) for key, value in batch.items()}
