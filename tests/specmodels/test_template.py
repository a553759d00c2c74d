"""Chat templates, special tokens and stop ids from the files of a folder."""

import json

import pytest

from specmodels import conversation, read_chat_template, read_special_tokens, read_stop_ids

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""


def write(folder, **files):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)


def test_from_tokenizer_config(tmp_path):
    write(tmp_path, tokenizer_config__json={"chat_template": CHATML})
    template = read_chat_template(tmp_path)
    turns = conversation("Hi", system="Be brief.")
    expected = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render(turns, enable_thinking=True) == expected
    assert template.render(turns, enable_thinking=False) == expected + "<think>\n\n</think>\n\n"
    plain = "<|im_start|>user\nHi<|im_end|>\n"
    assert template.render(conversation("Hi"), enable_thinking=True, add_generation_prompt=False) == plain


def test_the_template_s_own_file_comes_first(tmp_path):
    write(tmp_path, tokenizer_config__json={"chat_template": "old", "bos_token": {"content": "<s>"}})
    write(tmp_path, chat_template__jinja="{{ bos_token }}{{ messages[0]['content'] }}")
    assert read_chat_template(tmp_path).render(conversation("new"), enable_thinking=False) == "<s>new"


def test_of_several_templates_the_default(tmp_path):
    stored = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    write(tmp_path, tokenizer_config__json={"chat_template": stored})
    assert read_chat_template(tmp_path).render([], enable_thinking=False) == "yes"


@pytest.mark.parametrize(
    "config", [{}, {"chat_template": None}, {"chat_template": [{"name": "rag", "template": ""}]}]
)
def test_no_template(tmp_path, config):
    write(tmp_path, tokenizer_config__json=config)
    with pytest.raises(
        ValueError, match="no chat template, expected one for a chat model; use --no-chat-template"
    ):
        read_chat_template(tmp_path)


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path):
    write(tmp_path, chat_template__jinja="{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(ValueError, match="chat template refused"):
        read_chat_template(tmp_path).render(conversation("Hi"), enable_thinking=False)
    write(tmp_path, chat_template__jinja="{{ messages.append(1) }}")
    with pytest.raises(ValueError, match="chat template refused"):
        read_chat_template(tmp_path).render(conversation("Hi"), enable_thinking=False)


def test_a_template_may_refuse(tmp_path):
    write(tmp_path, chat_template__jinja="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match=r"roles must alternate.*--no-chat-template"):
        read_chat_template(tmp_path).render(conversation("Hi"), enable_thinking=False)


def test_a_broken_template(tmp_path):
    write(tmp_path, chat_template__jinja="{% if %}")
    with pytest.raises(ValueError, match="chat template does not parse"):
        read_chat_template(tmp_path)


def test_what_templates_in_use_need(tmp_path):
    write(
        tmp_path,
        chat_template__jinja=(
            "{% for message in messages %}\n{% if loop.index == 2 %}{% break %}{% endif %}\n"
            "{{ message | tojson }}\n{% endfor %}\n{{ strftime_now('%Y') | length }}"
        ),
    )
    text = read_chat_template(tmp_path).render(conversation("<b>", system="é"), enable_thinking=False)
    assert text == '{"role": "system", "content": "é"}\n4'


def test_special_tokens(tmp_path):
    write(
        tmp_path,
        tokenizer_config__json={
            "eos_token": "<end>",
            "bos_token": None,
            "pad_token": {"content": "<pad>"},
            "added_tokens_decoder": {"7": {"content": "<pad>"}},
        },
        tokenizer__json={"added_tokens": [{"id": 9, "content": "<end>"}]},
    )
    tokens = read_special_tokens(tmp_path)
    assert tokens.roles == {"eos_token": "<end>", "pad_token": "<pad>"}
    assert tokens.id_of("eos_token") == 9
    assert tokens.id_of("pad_token") == 7
    assert tokens.id_of("bos_token") is None


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [5, 3]}, {"eos_token_id": 4}, (3, 5, 9)),
        ({"eos_token_id": 5}, {}, (5, 9)),
        (None, {"eos_token_id": 4}, (4, 9)),
        ({}, {"eos_token_id": [4, 9]}, (4, 9)),
        (None, {}, (9,)),
    ],
)
def test_stop_ids_come_from_all_files(tmp_path, generation, config, expected):
    write(
        tmp_path,
        config__json=config,
        tokenizer_config__json={"eos_token": "<end>", "added_tokens_decoder": {"9": {"content": "<end>"}}},
    )
    if generation is not None:
        write(tmp_path, generation_config__json=generation)
    assert read_stop_ids(tmp_path) == expected


def test_a_stop_id_that_is_none(tmp_path):
    write(tmp_path, generation_config__json={"eos_token_id": "end"})
    with pytest.raises(ValueError, match="eos_token_id: got 'end', expected an id or a list of ids"):
        read_stop_ids(tmp_path)
