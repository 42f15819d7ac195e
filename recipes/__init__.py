"""Facts about families of training scripts, one TOML file each."""
