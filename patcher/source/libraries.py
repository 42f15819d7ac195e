"""Names of libraries, which imports mean unless a local file has the name."""

from __future__ import annotations

import sys

# Libraries that come as regular packages: a folder without __init__.py is not one of them.
LIBRARIES = frozenset(sys.stdlib_module_names) | {
    *("torch", "torchvision", "torchaudio", "numpy", "scipy", "pandas", "sklearn", "matplotlib"),
    *("transformers", "datasets", "accelerate", "peft", "tokenizers", "apex", "deepspeed", "tqdm"),
    *("pytorch_lightning", "lightning", "wandb", "tensorboardX", "cv2", "PIL", "yaml", "requests"),
    *("fairseq", "timm", "einops", "nltk", "horovod", "tensorflow", "jax", "setuptools", "pytest"),
}

# Not those that a project has a folder of the same name for, often without an __init__.py: it is
# imported where the library is not installed.
WITHOUT_FOLDERS = LIBRARIES - {"datasets"}

# Frameworks whose functions share names with torch's.
OTHER_FRAMEWORKS = {
    *("paddle", "tensorflow", "tf", "keras", "jax", "flax", "mxnet", "mindspore", "oneflow"),
    *("chainer", "megengine", "jittor", "tensorlayer"),
}
