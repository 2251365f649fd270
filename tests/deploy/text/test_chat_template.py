"""Conversations to prompts: as Hugging Face renders them, in a sandbox, within bounds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.text import BadTemplate, ChatTemplate, RenderBudget, TemplateFailed

USER = [{"role": "user", "content": "hi"}]


def test_blocks_leave_no_blank_lines_and_the_answer_is_opened() -> None:
    source = """
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<sys>' }}
    {%- endif %}
    {{- '<' + message.role + '>' + message.content }}
{%- endfor %}
{% if add_generation_prompt %}
<assistant>
{% endif %}"""
    assert ChatTemplate(source).render(USER) == "<sys><user>hi<assistant>\n"


def test_what_hugging_face_offers_to_templates_is_there() -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}{% generation %}{{ m | tojson }}{% endgeneration %}"
        "{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ strftime_now('%%') }}{{ tools is none }}"
    )
    rendered = ChatTemplate(source, {"bos_token": "<s>"}).render([{"role": "user", "content": "é<&"}])
    assert rendered == '<s>{"role": "user", "content": "é<&"}%True'


@pytest.mark.parametrize("name", ["chat", "loop"])
def test_transformers_renders_the_same(name: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    sources = {
        "chat": "{% for message in messages %}\n  {% if not loop.first %}\n|\n  {% endif %}\n{{ message['role'] }}: "
        "{{ message['content'] | trim }}\n{% endfor %}\n{% if add_generation_prompt %}A:{% endif %}",
        "loop": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.length %}"
        "{{ loop.index }}"
        "{{ loop.previtem.role if loop.previtem else '-' }}{{ loop.nextitem.role if loop.nextitem else '-' }}"
        "{% endfor %}{{ ns.n }}{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
    }
    messages = [
        {"role": "system", "content": " s "},
        {"role": "user", "content": "a\n"},
        {"role": "user", "content": "b"},
    ]
    theirs, _ = render_jinja_template([messages], chat_template=sources[name], add_generation_prompt=True)
    assert ChatTemplate(sources[name]).render(messages) == theirs[0]


def test_a_template_can_refuse_a_conversation() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateFailed, match="refuses this conversation: roles must alternate"):
        template.render(USER)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages[0].content + 1 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_the_sandbox_forbids_or_a_template_gets_wrong_is_the_requests_failure(source: str) -> None:
    with pytest.raises(TemplateFailed):
        ChatTemplate(source).render(USER)


def ticking(step: float) -> Iterator[float]:
    time = 0.0
    while True:
        yield time
        time += step


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for i in range(99999) %}x{% endfor %}",
    ],
    ids=["silent loops", "branching calls", "a talking loop"],
)
def test_a_rendering_that_runs_away_ends_with_its_time(source: str) -> None:
    clock = ticking(0.001)
    template = ChatTemplate(source, now=lambda: next(clock))
    with pytest.raises(TemplateFailed, match=r"more than 0\.5 s"):
        template.render(USER, RenderBudget(max_s=0.5))


def test_output_is_bounded() -> None:
    template = ChatTemplate("{% for i in range(1000) %}{{ 'x' * 100 }}{% endfor %}")
    with pytest.raises(TemplateFailed, match="longer than 5000 characters"):
        template.render(USER, RenderBudget(max_chars=5000))


def test_a_folder_gives_template_and_special_tokens(tmp_path: Path) -> None:
    config = {
        "chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}",
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "special": True},
        "pad_token": None,
        "add_bos_token": True,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.from_dir(tmp_path)
    assert template is not None
    assert template.render(USER) == "<s>|</s>|False"


def test_the_default_of_named_templates_and_the_jinja_file_win_in_this_order(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    template = ChatTemplate.from_dir(tmp_path)
    assert template is not None
    assert template.render(USER) == "plain"
    (tmp_path / "chat_template.jinja").write_text("file")
    template = ChatTemplate.from_dir(tmp_path)
    assert template is not None
    assert template.render(USER) == "file"


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    assert ChatTemplate.from_dir(tmp_path) is None


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadTemplate, match="line 1"):
        ChatTemplate("{% for %}")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(BadTemplate, match=r"tokenizer_config\.json is not valid JSON"):
        ChatTemplate.from_dir(tmp_path)
