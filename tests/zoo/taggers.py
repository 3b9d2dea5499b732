"""Taggers: an embedding, recurrent layers in both directions, a label for each word."""

from torch import Tensor, nn


class Tagger(nn.Module):
    """With an LSTM or a GRU of two layers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        layer = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
        self.embedding = nn.Embedding(100, 24)
        self.recurrent = layer(24, 32, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.label = nn.Linear(64, 9)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(words))
        return self.label(states).log_softmax(-1)
