"""boto3, requests and tensorflow, unused here, are empty; nltk splits at blanks."""

import sys
import types
from unittest import mock

NAMES = ("boto3", "botocore", "requests", "tensorflow", "tensorflow.contrib")

for name in NAMES:
    for part in ("", ".config", ".exceptions", ".slim"):
        sys.modules.setdefault(name + part, mock.MagicMock(ClientError=OSError))

sys.modules["nltk"] = types.SimpleNamespace(word_tokenize=str.split)
