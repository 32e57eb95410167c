"""What others would use for the same work, each called as `model(source, lengths, target) -> logits [B, T, V]`.

torch.nn.Transformer and transformers' MarianMT at the sizes of our Transformer, and the loops of the usual tutorials: a
cell stepped in Python, attention computed from the states at every step, and logits step by step.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.positions import sinusoid
from regard.models.contract import shift_right
from regard.symbols import END, PAD, START


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with one tied embedding and the paper's sinusoid."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.transformer = nn.Transformer(width, heads, layers, layers, inner, dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("places", sinusoid(torch.arange(512), width).float(), persistent=False)

    def receive(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) * math.sqrt(self.embed.embedding_dim)  # [B, T, D]
        return self.dropout(x + self.places[: tokens.shape[1]])

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        padding = torch.arange(source.shape[1], device=source.device) >= lengths[:, None]  # [B, S], True = padding
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device)
        x = self.transformer(
            self.receive(source),
            self.receive(shift_right(target)),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(x, self.embed.weight)


class Marian(nn.Module):
    """transformers' MarianMT; it ties source, target and output as well."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, inner: int, dropout: float) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        self.marian = MarianMTModel(
            MarianConfig(
                vocab_size=vocabulary,
                d_model=width,
                encoder_layers=layers,
                decoder_layers=layers,
                encoder_attention_heads=heads,
                decoder_attention_heads=heads,
                encoder_ffn_dim=inner,
                decoder_ffn_dim=inner,
                activation_function="relu",
                dropout=dropout,
                attention_dropout=0.0,
                activation_dropout=0.0,
                scale_embedding=True,
                max_position_embeddings=512,
                pad_token_id=PAD,
                eos_token_id=END,
                decoder_start_token_id=START,
                forced_eos_token_id=None,
            )
        )

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        mask = torch.arange(source.shape[1], device=source.device) < lengths[:, None]  # [B, S]
        found: Any = self.marian(input_ids=source, attention_mask=mask.long(), decoder_input_ids=shift_right(target))
        return found.logits


class TutorialBahdanau(nn.Module):
    """GRU with additive attention as tutorials write it: one step in Python after another, logits in each.

    `cached` projects the keys once; without it, query and states are joined and projected again at every step.
    """

    def __init__(self, vocabulary: int, embedding: int, width: int, dropout: float, cached: bool) -> None:
        super().__init__()
        self.cached = cached
        self.embed = nn.Embedding(vocabulary, embedding)
        self.encoder = nn.GRU(embedding, width, batch_first=True, bidirectional=True)
        self.initial = nn.Linear(width, width)
        self.embed_target = nn.Embedding(vocabulary, embedding)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(2 * width, width)
        self.energy = nn.Linear(width, 1, bias=False)
        self.cell = nn.GRUCell(embedding + 2 * width, width)
        self.output = nn.Linear(embedding + 3 * width, vocabulary)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.embed(source)), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        packed, last = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=source.shape[1])
        mask = torch.arange(source.shape[1], device=source.device) < lengths[:, None]  # [B, S]
        hidden = torch.tanh(self.initial(last[1]))  # [B, n]
        words, logits = shift_right(target), []
        keys = self.key(states) if self.cached else None
        for t in range(target.shape[1]):
            embedded = self.dropout(self.embed_target(words[:, t]))  # [B, m]
            projected = self.key(states) if keys is None else keys
            scores = self.energy(torch.tanh(self.query(hidden)[:, None] + projected)).squeeze(-1)  # [B, S]
            weights = torch.softmax(scores.masked_fill(~mask, -1e10), dim=-1)
            context = torch.bmm(weights[:, None], states).squeeze(1)  # [B, 2n]
            hidden = self.cell(torch.cat([embedded, context], dim=-1), hidden)
            logits.append(self.output(self.dropout(torch.cat([hidden, context, embedded], dim=-1))))
        return torch.stack(logits, dim=1)


class TutorialLuong(nn.Module):
    """Stacked LSTM with the general score and input feeding, one step in Python after another, logits in each."""

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float, cached: bool) -> None:
        super().__init__()
        self.cached = cached
        self.embed = nn.Embedding(vocabulary, width)
        self.encoder = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout)
        self.embed_target = nn.Embedding(vocabulary, width)
        self.cells = nn.ModuleList(nn.LSTMCell(2 * width if k == 0 else width, width) for k in range(layers))
        self.general = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.embed(source)), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        packed, (hidden, cell) = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=source.shape[1])
        mask = torch.arange(source.shape[1], device=source.device) < lengths[:, None]  # [B, S]
        state = list(zip(hidden, cell, strict=True))
        fed = torch.zeros_like(hidden[0])  # [B, n]
        words, logits = shift_right(target), []
        keys = self.general(states) if self.cached else None
        for t in range(target.shape[1]):
            x = torch.cat([self.embed_target(words[:, t]), fed], dim=-1)  # [B, 2n]
            for k, step in enumerate(self.cells):
                state[k] = step(self.dropout(x), state[k])
                x = state[k][0]
            projected = self.general(states) if keys is None else keys
            scores = torch.bmm(projected, x[:, :, None]).squeeze(-1)  # [B, S]
            weights = torch.softmax(scores.masked_fill(~mask, -1e10), dim=-1)
            context = torch.bmm(weights[:, None], states).squeeze(1)  # [B, n]
            fed = torch.tanh(self.combine(torch.cat([context, x], dim=-1)))
            logits.append(self.output(self.dropout(fed)))
        return torch.stack(logits, dim=1)
