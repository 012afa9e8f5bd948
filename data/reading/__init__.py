"""What a source holds, read into columns: files and their encodings, JSON, Parquet, web pages, data sets, and the
documentation of this Python installation."""
