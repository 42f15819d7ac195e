"""Near misses about other libraries and their versions."""

from __future__ import annotations

UNTOUCHED: list[tuple[str, str, str]] = [
    ("DF906", "one output of something else, and none", """
        import json
        import sys
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = mine.Linear(4, 2, 1)
                self.loss = torch.nn.BCELoss()
            def forward(self, x, labels):
                logits = self.mlp(x)
                loss = self.loss(logits, labels.float())
                return loss
        """),
    ("DF906", "an empty network", """
        import json
        import sys
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = torch.nn.Sequential()
                self.loss = torch.nn.BCELoss()
            def forward(self, x, labels):
                logits = self.mlp(x)
                loss = self.loss(logits, labels.float())
                return loss
        """),
    ("DF906", "a network of a name", """
        import json
        import sys
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = make
                self.loss = torch.nn.BCELoss()
            def forward(self, x, labels):
                logits = self.mlp(x)
                loss = self.loss(logits, labels.float())
                return loss
        """),
    ("DF906", "scores alone", """
        import json
        import sys
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1), torch.nn.Sigmoid())
                self.loss = torch.nn.BCELoss()
            def forward(self, x, labels):
                logits = self.mlp(x)
                loss = self.loss(logits)
                return loss
        """),  # noqa: E501
    ("DF906", "another last layer", """
        import json
        import sys
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Linear(1, 3))
                self.loss = torch.nn.BCELoss()
            def forward(self, x, labels):
                logits = self.mlp(x)
                loss = self.loss(logits, labels.float())
                return loss
        """),
    ("DF907", "another way of loading", """
        import json
        import sys
        from transformers import RobertaConfig, RobertaModel
        def main(path, args=None):
            config = RobertaConfig.from_pretrained(path)
            model = RobertaModel.from_config(path, config=config)
            model.resize_token_embeddings(700)
            return config
        """),
    ("DF907", "a configuration without a name", """
        import json
        import sys
        from transformers import RobertaConfig, RobertaModel
        def main(path, args=None):
            config = RobertaConfig.from_pretrained(path)
            model = RobertaModel.from_pretrained(path, config=Config(path))
            model.resize_token_embeddings(700)
            return config
        """),
    ("DF907", "no configuration", """
        import json
        import sys
        from transformers import RobertaConfig, RobertaModel
        def main(path, args=None):
            config = RobertaConfig.from_pretrained(path)
            model = RobertaModel.from_pretrained(path)
            model.resize_token_embeddings(700)
            return config
        """),
    ("DF907", "the result is used, or an attribute's model", """
        import json
        import sys
        from transformers import RobertaConfig, RobertaModel
        def main(path, args=None):
            config = RobertaConfig.from_pretrained(path)
            model = RobertaModel.from_pretrained(path, config=config)
            x = model.resize_token_embeddings(700)
            self.model.resize_token_embeddings(700)
            resize_token_embeddings(700)
            return config
        """),
]  # fmt: skip
REPORTED: list[tuple[str, str, str]] = [
]  # fmt: skip
REPAIRED: list[tuple[str, str, str, str]] = [
]  # fmt: skip
