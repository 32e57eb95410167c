"""The attention of a Hugging Face translator: python examples/huggingface.py MODEL "A sentence." attention.html

MODEL is a folder or a name that transformers can load, such as an OPUS-MT model.
"""

import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from regard import Trace


def main(name: str, sentence: str, out: str) -> None:
    """Translate, and draw what the translation attended to."""
    tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModelForSeq2SeqLM.from_pretrained(name)
    model.set_attn_implementation("eager")  # a fused kernel keeps no weights
    read = tokenizer(sentence, return_tensors="pt")
    found = model.generate(**read, output_attentions=True, return_dict_in_generate=True, num_beams=1, max_new_tokens=50)
    source = tokenizer.convert_ids_to_tokens(read["input_ids"][0])
    target = tokenizer.convert_ids_to_tokens(found.sequences[0][1:])  # without the decoder's start token
    Trace.from_huggingface(found, source, target).draw(out)
    print(f"{' '.join(target)} -> {out}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
