"""Small programs to copy from; each has --help."""
