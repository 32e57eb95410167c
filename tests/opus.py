"""A tiny OPUS-MT: a MarianMT model of transformers that has learned a few sentences, with its tokenizer."""

import io
import json
import warnings

import pytest
import sentencepiece
import torch

ENGLISH = ["the cat sees the red house", "a dog and the black cat", "the house is red", "dogs see a house"]
FRENCH = ["le chat voit la maison rouge", "un chien et le chat noir", "la maison est rouge", "les chiens voient"]
SENTENCES = [*ENGLISH, "red dogs", "the black house and a cat is the dog"]


def spm(lines, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 4),
        model_writer=model,
        vocab_size=size,
        model_type="unigram",
        minloglevel=3,
        hard_vocab_limit=False,
    )
    return model.getvalue()


def pieces_of(content):
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    return [processor.id_to_piece(index) for index in range(len(processor))]


def marian(name):
    """A class of transformers; the import takes seconds, so collecting the tests does without."""
    reason = "transformers is not installed (pip install transformers)"
    return getattr(pytest.importorskip("transformers", reason=reason), name)


def tokenizer_of(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return marian("MarianTokenizer").from_pretrained(folder)


def learn(model, tokenizer, updates=60):
    """Enough training that sentences end, as those of a random model never do."""
    batch = tokenizer(ENGLISH, text_target=FRENCH, return_tensors="pt", padding=True)
    batch["labels"][batch["labels"] == model.config.pad_token_id] = -100
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(updates):
        optimiser.zero_grad()
        model(**batch).loss.backward()
        optimiser.step()
    model.eval()


def make(folder):
    """Write the files into a new folder; one piece of the source is missing in its table."""
    folder.mkdir(parents=True)
    source, target = spm(ENGLISH, 40), spm(FRENCH, 45)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    own = [piece for piece in pieces_of(source) + pieces_of(target) if piece not in ("<s>", "</s>", "<unk>", "▁cat")]
    tokens = ["</s>", "<unk>", *dict.fromkeys(own), ">>fra<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    torch.manual_seed(3)
    config = marian("MarianConfig")(
        vocab_size=len(tokens), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64,
        activation_function="swish", scale_embedding=True, init_std=0.2, dropout=0.0, pad_token_id=len(tokens) - 1,
        eos_token_id=0, decoder_start_token_id=len(tokens) - 1, forced_eos_token_id=None,
    )  # fmt: skip
    model = marian("MarianMTModel")(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(weight, float("norm.weight" in name), 0.3)
    model.final_logits_bias.normal_(0, 0.5)
    learn(model, tokenizer_of(folder))
    model.generation_config.num_beams, model.generation_config.max_length = 4, 60
    model.generation_config.bad_words_ids = [[len(tokens) - 1]]
    model.save_pretrained(folder)
    return folder


def generated(model, tokenizer, text, beams):
    ids = tokenizer([text], return_tensors="pt")
    with torch.no_grad():
        found = model.generate(**ids, num_beams=beams, max_length=60, do_sample=False)[0].tolist()
    return [tokenizer.convert_ids_to_tokens(index) for index in found if index not in (0, model.config.pad_token_id)]
