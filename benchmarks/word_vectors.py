"""Word vectors of the training documents of a config, by gensim's word2vec: skip-grams with negative samples.

    pip install gensim
    python benchmarks/word_vectors.py configs/imdb-attention.toml runs/imdb.vectors

Documents that the config holds out are left out, and so are those of test files: only what the classifier is trained
on. Words are split and lower-cased as for the classifier. With more than one worker the result depends on their timing.
"""

import argparse
from pathlib import Path

from gensim.models import Word2Vec

from regard.api.training import gather
from regard.data.documents import spell, split_document, training_documents
from regard.runs.experiment import resolve
from regard.sealed import write_atomically


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=0, help="numbers a word; 0 = as wide as the config's embeddings")
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    experiment = resolve(gather(str(given.config)))
    data, width = experiment.data, given.width or experiment.model.embedding
    documents = [spell(one.text, split_document(one.text, data.max_sentence)) for one in training_documents(data)]
    lines = [(line.lower() if data.lowercase else line).split(" ") for lines in documents for line in lines]
    model = Word2Vec(
        lines, vector_size=width, window=given.window, min_count=data.min_count, epochs=given.epochs, sg=1, negative=5,
        seed=1, workers=given.workers,
    )  # fmt: skip
    rows = (f"{word} {' '.join(f'{x:.5f}' for x in model.wv[word])}\n" for word in model.wv.index_to_key)
    write_atomically(given.out, "".join(rows).encode())
    print(f"{given.out}: {len(model.wv)} words, {width} numbers each, of {len(documents)} documents")


if __name__ == "__main__":
    main()
