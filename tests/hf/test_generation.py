"""``generate`` gives the texts of our generator, on our states."""

import copy

import pytest
import torch

from fairseq_transnormer.data.subword_files import decode_byte_pieces
from fairseq_transnormer.ops import state_bytes
from tests.messages import refuses

# one has unknown words, one is empty; of different lengths, hence with pads on the left
PROMPTS = ["the river", "an old king left €", "", "her brother sees nothing in 1902"]


def encoded(texts, prompts=PROMPTS):
    return texts.tokenizer(prompts, return_tensors="pt", padding=True)


def written(texts, prompts=PROMPTS, **settings):
    tokens = texts.model.generate(**encoded(texts, prompts), **settings)
    return texts.tokenizer.batch_decode(tokens, skip_special_tokens=True)


def test_the_likeliest_tokens(texts):
    """Those of fairseq's generator, which begins no text with its end."""
    more = {"beam": 1, "max_len_a": 1, "max_len_b": 24}
    found = [texts.hub.sample(prompt, **more) for prompt in PROMPTS]
    expected = [*map(decode_byte_pieces, found)]
    assert written(texts, max_new_tokens=25) == expected
    assert len(set(expected)) > 2 and all(expected)


def test_beam_search(texts):
    """Length penalties differ: fairseq's counts the prompt, too."""
    more = {"beam": 4, "lenpen": 0.0, "max_len_a": 1, "max_len_b": 19}
    found = [texts.hub.sample(prompt, **more) for prompt in PROMPTS]
    expected = [*map(decode_byte_pieces, found)]
    more = {"num_beams": 4, "length_penalty": 0.0, "early_stopping": True}
    assert written(texts, max_new_tokens=20, **more) == expected


@pytest.mark.parametrize("choice", [{"top_k": 3}, {"top_p": 0.6}])
def test_what_may_be_drawn(words, choice):
    """The same tokens with the same probabilities as in fairseq."""
    (prompt,) = PROMPTS[:1]
    rest = {"top_k": 0} | choice
    found = words.model.generate(
        **encoded(words, [prompt] * 300),
        **({"do_sample": True, "max_new_tokens": 1} | rest),
    )[:, -1]
    drawn = set()
    for seed in range(20):
        tokens = words.generator.generate(
            prompt, max_new_tokens=1, seed=seed, **choice
        ).tokens
        drawn.add(tokens[len(words.tokenizer(prompt)["input_ids"]) - 1])
    assert drawn <= set(found.tolist()) and len(drawn) > 1
    with torch.no_grad():
        logits = words.model(encoded(words, [prompt])["input_ids"]).logits[0, -1]
    ranked = logits.softmax(-1).sort(descending=True)
    kept = 3
    if "top_p" in choice:
        kept = int((ranked.values.cumsum(-1) < choice["top_p"]).sum()) + 1
    assert set(found.tolist()) == set(ranked.indices[:kept].tolist())


def test_several_texts_a_prompt(words):
    tokens = words.model.generate(
        **encoded(words), num_beams=4, num_return_sequences=3, max_new_tokens=20
    )
    assert len(tokens) == 3 * len(PROMPTS)
    best = written(words, num_beams=4, max_new_tokens=20)
    found = words.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    assert found[::3] == best and len(set(found)) > len(set(best))
    drawn = words.model.generate(
        **encoded(words), do_sample=True, num_return_sequences=5, max_new_tokens=9
    )
    assert len(drawn) == 5 * len(PROMPTS)


@pytest.mark.parametrize(
    "settings",
    [{"use_cache": False}, {"prefill_chunk_size": 1}, {"prefill_chunk_size": 3}],
    ids=str,
)
def test_ways_to_read_the_prompt(words, settings):
    """Without a cache, and the prompt in parts, some of them a column with pads."""
    expected = written(words, max_new_tokens=20)
    assert written(words, max_new_tokens=20, **settings) == expected


def test_the_cache_has_one_size(words, hf):
    sizes = set()
    for new in (1, 40):
        cache = hf.TransNormerCache(words.model.config.num_hidden_layers)
        words.model.generate(
            **encoded(words, PROMPTS[:1]),
            cache=cache,
            min_new_tokens=new,
            max_new_tokens=new,
        )
        assert cache.get_seq_length() >= new and cache.get_max_length() == -1
        sizes.add(sum(map(state_bytes, cache.states)))
    assert len(sizes) == 1
    cache.reset()
    assert cache.states is None and cache.get_seq_length() == 0


def test_a_cache_that_is_kept(words):
    """The prompt is read once, and continued, also by the argument's earlier name."""
    model, tokenizer = words.model, words.tokenizer
    with torch.no_grad():
        start = model(**tokenizer("the river", return_tensors="pt")).cache
    for more in (" found", " crosses the"):
        inputs = tokenizer(f"the river{more}", return_tensors="pt")
        cache = copy.deepcopy(start)
        found = model.generate(**inputs, cache=cache, max_new_tokens=9)
        assert torch.equal(found, model.generate(**inputs, max_new_tokens=9))
    start.batch_repeat_interleave(2)
    start.batch_select_indices(torch.tensor([1]))
    again = model.generate(**inputs, past_key_values=start, max_new_tokens=9)
    assert torch.equal(found, again)


def test_a_prompt_of_embeddings(words):
    inputs = encoded(words)
    expected = words.model.generate(**inputs, max_new_tokens=9)
    inputs["inputs_embeds"] = words.model.get_input_embeddings()(inputs["input_ids"])
    prompt = inputs.pop("input_ids")
    found = words.model.generate(**inputs, max_new_tokens=9)
    assert torch.equal(found, expected[:, prompt.shape[1] :])


@torch.no_grad()
def test_a_cache_is_continued_after_one_row_ended(texts):
    """The pads that follow a row's end are none of its tokens."""
    model, prompts = texts.model, encoded(texts, PROMPTS[:2])
    free = model.generate(**prompts, max_new_tokens=9, min_new_tokens=9)
    length = prompts["input_ids"].shape[1]
    first, second = free[:, length:].tolist()
    end = next(t for i, t in enumerate(first) if t not in second[: i + 3])
    done = model.generate(
        **prompts, max_new_tokens=9, eos_token_id=end, return_dict_in_generate=True
    )
    tokens = torch.cat((done.sequences, free[:, length : length + 3]), 1)
    mask, cache = tokens.ne(1).long(), done.cache
    assert mask[0, length:-3].sum() < mask[1, length:-3].sum()
    expected = model(tokens, mask).logits[:, -1]
    seen = cache.get_seq_length()
    for each in (mask, mask[:, seen:], None):
        found = model(tokens[:, seen:], each, copy.deepcopy(cache)).logits[:, -1]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    more = {"attention_mask": mask, "max_new_tokens": 5}
    found = model.generate(tokens, cache=cache, **more)
    assert torch.equal(found, model.generate(tokens, **more))


def test_guidance_after_one_row_ended(texts):
    """transformers calls the model again, with a mask of ones at pads."""
    model, prompts = texts.model, encoded(texts, PROMPTS[:2])
    guided = {**prompts, "guidance_scale": 1.5, "max_new_tokens": 9}
    first, second = model.generate(**guided, min_new_tokens=9)[:, -9:].tolist()
    guided["eos_token_id"] = next(t for t in first[:6] if t not in second)
    found = model.generate(**guided)
    assert torch.equal(found, model.generate(**guided, use_cache=False))
    assert (found == 1).sum() > prompts["input_ids"].eq(1).sum()


def test_without_generation_config(words, hf, tmp_path):
    """What ends a text, and what is none, stands in config.json, too."""
    words.model.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    model = hf.TransNormerForCausalLM.from_pretrained(tmp_path)
    expected = words.model.generation_config.to_diff_dict()
    assert model.generation_config.to_diff_dict() == expected
    inputs = encoded(words)
    found = model.generate(**inputs, max_new_tokens=20)
    assert torch.equal(found, words.model.generate(**inputs, max_new_tokens=20))


def test_a_pad_is_never_written(words):
    """... however large its logit is; the others stay as they are."""
    found = words.model.generate(
        **encoded(words), max_new_tokens=5, output_scores=True, output_logits=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    for scores, logits in zip(found.scores, found.logits, strict=True):
        assert (scores[:, 1] == -torch.inf).all() and logits.isfinite().all()
        assert torch.equal(scores[:, 2:], logits[:, 2:])


def test_strings_that_end_a_text(words, zoo):
    """transformers looks for them among pieces of words."""
    with refuses(ValueError, "stop_strings", "eos_token_id"):
        written(words, stop_strings=["e"], tokenizer=words.tokenizer)
    texts, prompts = zoo.exported["pieces"], PROMPTS[:1]
    (plain,) = written(texts, prompts, max_new_tokens=25)
    # the first letter behind a few
    end = next(each for each in plain[len(prompts[0]) + 3 :] if each.isalpha())
    settings = {"stop_strings": [end], "tokenizer": texts.tokenizer}
    (stopped,) = written(texts, prompts, max_new_tokens=25, **settings)
    rest = stopped.removeprefix(prompts[0])
    assert plain.startswith(stopped) and end in rest and len(stopped) < len(plain)


@torch.no_grad()
def test_a_cache_that_has_read_the_whole_prompt(words):
    """The prompt would be read twice."""
    tokens = encoded(words, PROMPTS[:1])["input_ids"]
    expected = words.model.generate(tokens, max_new_tokens=5)
    for seen in range(1, tokens.shape[1] + 1):
        cache = words.model(tokens[:, :seen], use_cache=True).cache
        settings = {"cache": cache, "max_new_tokens": 5}
        if seen < tokens.shape[1]:
            assert torch.equal(words.model.generate(tokens, **settings), expected)
        else:
            with refuses(ValueError, "cache", f"read {seen} tokens"):
                words.model.generate(tokens, **settings)
