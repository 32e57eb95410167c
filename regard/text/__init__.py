"""Text: lines of files, sentences and words, normal forms, and links between words."""
