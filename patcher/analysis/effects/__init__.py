"""What running code does to files and to other ranks."""
