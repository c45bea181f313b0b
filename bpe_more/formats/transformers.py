"""Files that only transformers reads: settings (with the tokenizer_class), roles of special tokens, chat templates.

Gives: transformers_files(), which keeps the settings in a folder; in_templates(), which renames and renumbers special
tokens in a tokenizer.json; TRANSFORMERS_FILES; dict_in_file() and entries_of(), which take any JSON.
Uses: errors.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Container, Mapping
from typing import Any

import bpe
from bpe_more.errors import require

TRANSFORMERS_FILES = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
DEFAULTS = {
    "clean_up_tokenization_spaces": False,
    "model_input_names": ["input_ids", "attention_mask"],  # else transformers 4 adds token_type_ids
}
# the class of another model, such as Qwen2Tokenizer, brings its own pattern in version 5
TOKENIZER_CLASS = "PreTrainedTokenizerFast"
LISTS_OF_ROLES = ["additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"]


def transformers_files(folder: bpe.FilePath, special_ids: Mapping[str, int], roles: Mapping[str, Any],
                       vocab_ids: Mapping[str, int]) -> tuple[dict[str, str], str]:
    """Return the texts of files that only transformers reads, and a note that names what is left out.

    Settings in the folder stay, and `roles` replace those there. Roles and added tokens of another model are left
    out, since transformers would give them new ids. A token is this model's if it is in special_ids, or has the
    same id in "added_tokens_decoder" as in vocab_ids, {name: id}. A chat template is in two files: version 5
    prefers chat_template.jinja, version 4.45 reads only tokenizer_config.json.
    """
    new = given_roles(roles, special_ids)
    old, decoder, added = settings_in(folder)  # decoder: added_tokens_decoder, {id: token}
    # torchtitan's tokenizer.json has no added tokens: transformers takes them from `decoder`, with the vocabulary's ids
    listed = {content_of(token) or "": token_id for token_id, token in decoder.items()}
    in_vocab = {text: token_id for text, token_id in listed.items() if str(vocab_ids.get(text)) == token_id}
    own = special_ids.keys() | in_vocab.keys()
    kept, gone = own_roles({name: value for name, value in old.items() if name not in new}, own)
    others = {*listed, *added}.difference(own)
    gone += [f"the added token {text!r:.60}" for text in sorted(map(str, others))]

    kept.pop("tokenizer_class", None)
    config = {"tokenizer_class": TOKENIZER_CLASS, **DEFAULTS, **kept, **new}
    config.pop("auto_map", None)  # it names a class in a Python file of the other model
    still_added = {token_id: decoder[token_id] for text, token_id in in_vocab.items() if text not in special_ids}
    if still_added:
        config["added_tokens_decoder"] = still_added
    in_map = {name: value for name, value in config.items() if is_role(name, value)}
    for name in LISTS_OF_ROLES:
        if isinstance(in_map.get(name), dict):  # of several tokens: version 4.57 would take it for one token there
            del in_map[name]
    still_numbered = {text: token_id for text, token_id in added.items() if special_ids.get(text) == token_id}
    texts = {"tokenizer_config.json": bpe.to_json(config)}
    for name, content in (("special_tokens_map.json", in_map), ("added_tokens.json", still_numbered)):
        if os.path.exists(os.path.join(folder, name)):
            texts[name] = bpe.to_json(content)
    if isinstance(template := config.get("chat_template"), str):  # in version 4, it may be a list of several
        texts["chat_template.jinja"] = template
    what = ", ".join(gone[:5]) + f" and {len(gone) - 5:,} more" * (len(gone) > 5)
    return texts, f"not in this model, so no longer in the settings for transformers: {what}" if gone else ""


def settings_in(folder: bpe.FilePath) -> tuple[dict[str, Any], dict[Any, Any], dict[str, Any]]:
    """Return the settings in a folder, the tokens listed in them by id, and those in added_tokens.json."""
    settings, in_map, added = (dict_in_file(os.path.join(folder, name)) for name in TRANSFORMERS_FILES)
    with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "chat_template.jinja"), "rb") as file:
        settings["chat_template"] = file.read().decode("utf-8")
    decoder = settings.pop("added_tokens_decoder", None)  # tokenizer.json usually has the same
    if decoder is None:  # only then does transformers read special_tokens_map.json and added_tokens.json
        settings |= in_map
    return settings, entries_of(decoder), added


def given_roles(roles: Mapping[str, Any], special_tokens: Container[str]) -> dict[str, Any]:
    """Return the roles that a call has named, checked."""
    new = {name: value for name, value in roles.items() if value is not None}
    for name, value in new.items():
        if name != "chat_template":
            require(value in special_tokens, "{}={!r:.99} must be one of the special tokens", name, value)
        elif not isinstance(value, str):
            raise TypeError(f"chat_template must be a str, not {value!r:.60}")
    return new


def dict_in_file(path: str) -> dict[str, Any]:
    """Return a dict from a file of JSON; an empty one if there is no such file, or another content."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with open(path, "rb") as file:
            content = json.load(file)
        bpe.to_json(content).encode("utf-8")  # no lone surrogate
        if isinstance(content, dict):
            return content
    return {}


def content_of(token: Any) -> str | None:
    """Return the text of a token, which is a str or a dict in transformers' files; None for anything else."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def is_role(name: str, value: Any) -> bool:
    """Tell if a setting of transformers names one or several special tokens."""
    return name in LISTS_OF_ROLES or (name.endswith("_token") and content_of(value) is not None)


def own_roles(settings: Mapping[str, Any], special_tokens: Container[str]) -> tuple[dict[str, Any], list[str]]:
    """Return settings without roles of tokens that aren't special tokens of the model; and what is left out."""
    kept, gone = {}, []
    for name, value in settings.items():
        if not is_role(name, value):
            kept[name] = value
            continue
        tokens = entries_of(value) if name in LISTS_OF_ROLES else {0: value}
        texts = {key: content_of(token) for key, token in tokens.items()}
        own = {key: text for key, text in texts.items() if text in special_tokens}
        gone += [f"{name} {texts[key]!r:.60}" for key in texts if key not in own]
        if name in LISTS_OF_ROLES:
            kept[name] = own if isinstance(value, dict) else list(own.values())
        elif own:
            kept[name] = own[0]  # of {0: value}
    return kept, gone


def entries_of(tree: Any) -> dict[Any, Any]:
    """Return a dict as it is, a list as {index: value}, and {} for anything else."""
    return tree if isinstance(tree, dict) else dict(enumerate(tree)) if isinstance(tree, list) else {}


def in_templates(tree: Any, names: Mapping[str, str], ids: Mapping[int, int], key: str = "") -> Any:
    """Return an entry of a tokenizer.json such as "post_processor" with other names and ids of special tokens.

    key is the name of the entry whose value is this tree, or a list with this tree. Special tokens are in:

        {"SpecialToken": {"id": "<s>"}}                                              a part of a template
        {"special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}    their ids
        {"cls": ["<s>", 0], "sep": ["</s>", 1]}                                      templates of BERT and RoBERTa
        {"pad_id": 0, "pad_token": "<s>"}                                            padding

    {"Sequence": {"id": "A"}} stays, since special tokens have at least two bytes.
    """
    if isinstance(tree, dict):
        new_names = names if key == "special_tokens" else {}
        return {new_names.get(name, name): in_templates(value, names, ids, name) for name, value in tree.items()}
    if isinstance(tree, list):
        return [in_templates(value, names, ids, key) for value in tree]
    if key in ("id", "tokens", "pad_token", "cls", "sep") and isinstance(tree, str):
        return names.get(tree, tree)
    return ids.get(tree, tree) if key in ("ids", "pad_id", "cls", "sep") else tree
