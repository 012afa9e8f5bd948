"""What a word and a character are, and the kernels over Arrow buffers that all else stands on."""
