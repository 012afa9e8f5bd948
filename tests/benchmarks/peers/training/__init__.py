"""The trainings that `make bench-train` compares: of one model, on real text, each in processes of its own."""
