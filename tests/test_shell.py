"""Shell files are read as bash reads them: what it would start is found without starting it."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.recipes.from_shell.expansion import Word
from ddpfix.recipes.from_shell.interpreter import ShellCommand, commands_of
from hypothesis import given, settings
from hypothesis import strategies as st

# Says with which words, where, and on which cards it is started.
STUB = """#!/bin/bash
exec >> "$HEARD"
printf '%s\\0' "${0##*/}" "$@"
printf '%s\\n%s\\n\\0' "$PWD" "$CUDA_VISIBLE_DEVICES"
"""
PROGRAMS = ("python", "python3", "torchrun", "accelerate")
ARGUMENTS = ("java", "16", "two words")
ENVIRON = {"SCRATCH": "/scratch", "EMPTY": ""}

# In the styles of public training scripts' launchers.
FILES = {
    "variables and continued lines": """
        lang=java   # programming language
        lr=5e-5
        out=saved_models/$lang
        mkdir -p $out
        python run.py \\
            --do_train --lang $lang \\
            --learning_rate=${lr} --output_dir ${out}/best 2>&1| tee $out/train.log
        """,
    "a launcher, with variables that talk": """
        NODES=1 && echo NODES: ${NODES}
        PER_NODE=8 && echo PER_NODE: ${PER_NODE}
        python3 -m torch.distributed.launch --nproc_per_node ${PER_NODE} --nnodes=${NODES} ../run.py
        """,
    "quotes of each kind": """
        name='$lang is "kept"'
        python run.py --a "$name" --b 'x y' --c "a\\"b\\$c" --d $'tab' --e a\\ b --f "" --g ''
        """,
    "blanks that are split and blanks that are not": """
        args="--epochs 3   --lr 1e-4"
        python run.py $args "$args" x$args
        """,
    "arrays that grow": """
        args=(--model "my model" # of ours
              --epochs 3)
        args+=(--seed 1)
        python run.py "${args[@]}" --last
        more+="--x"
        more+=" --y"
        python run.py $more
        """,
    "arguments and defaults": """
        lang=$1
        python run.py $lang ${2} ${3:-none} "${4:-none}" ${5-a b} "$3"
        lr=${LR:-3e-4}; lr=${lr:-1}; : ${SEED:=7}
        python run.py --lr $lr --scratch ${SCRATCH}/x --plus ${1:+given} ${9:+not}
        """,
    "all arguments": """
        python run.py "$@" --end
        shift
        python run.py $* ${@:2} --end
        """,
    "cards that are exported and cards that are not": """
        python run.py --before
        CUDA_VISIBLE_DEVICES=0,1 python run.py --mine
        CUDA_VISIBLE_DEVICES=2,3
        python run.py --kept_back
        export CUDA_VISIBLE_DEVICES=4,5
        python run.py --exported
        export CUDA_VISIBLE_DEVICES
        """,
    "folders": """
        cd code
        python run.py
        (cd ../other && python run.py)
        cd .. && python run.py
        cd "$(dirname "$0")"/code || exit
        python run.py
        """,
    "arithmetic": """
        gpus=4 global=64
        python run.py $((global / gpus)) $(( (global - 4) / (gpus * 2) % 5 )) $((2+3))
        """,
    "conditions that can be followed": """
        if [ "$1" == "java" ]; then lr=1; elif [ "$1" = go ]; then lr=2; else lr=3; fi
        if [[ $2 -gt 8 ]]; then big=--big; fi
        if [ -z "$EMPTY" ]; then empty=yes; fi
        if [ ! -n "$NOWHERE" ]; then nowhere=yes; fi
        if [[ $lr != 1 ]]
        then
            if [ 1 -eq 1 ]; then python run.py --no; fi
            other=set
        else
            python run.py --inner $big $empty $nowhere $other
        fi
        python run.py --lr $lr
        """,
    "tests before && and ||": """
        lr=1
        [ "$1" = go ] && lr=2
        [[ $1 == java ]] && bs=4 || bs=8
        [ "$1" = go ] && seed=1 || seed=2
        [ -n "$EMPTY" ] || empty=filled
        [ 1 -gt 2 ] && python run.py --no
        mkdir -p logs && epochs=3
        python run.py $lr $bs $seed $empty $epochs
        """,
    "a function that is called twice": """
        train() {
            local seed=$1
            python run.py --seed $seed --rate "$2"
        }
        function other { python run.py --other; }
        train 1 5e-5
        train 2 "a b"
        other
        """,
    "what is no command": """
        # python commented.py
        echo python run.py --no
        cat > /dev/null <<END
        python heredoc.py
END
        cat > /dev/null <<-'STOP'
        python 'heredoc.py
\tSTOP
        python run.py --yes  # python comment.py
        python run.py --not#a --comment
        """,
    "assignments and pipelines that end with their line": """
        a=1 b=2
        python run.py $a $b
        c= d=
        e=
        if true; then python run.py --if; fi
        f=3 g=4 # and a comment
        python run.py --f $f | cat | cat
        true && python run.py --behind
        if [ 1 = 1 ]; then
            python run.py --x | cat | cat
        else
            true && python run.py --no
        fi
        python run.py --a 1 \\
            # --b 2 \\
        python run.py --c
        """,
    "variables between signs": """
        lang=java data=d
        out=$data/$lang/$1
        files=$data/train.$lang,$data/dev.$lang.txt
        python run.py $data/$lang/train.txt --out=$out-$lang.log $files $2v "$data/$lang/"
        """,
    "blanks in quotes and behind backslashes": """
        x=1
        python run.py " $x" "$x " " $x $x " "  " $x\\ y "a"\\ b \\ c="5"\\$ "${x:-  }" "\\ $x \\ "
        price="5"\\$
        python run.py $price ${x:-"a b"} ${y:-"a b"} ${y:-a b} "${y:-'a b'}"
        """,
    "redirections in the midst and behind a chain": """
        python run.py > log.txt --a 1 2>&1 --b
        > all.txt python run.py --c < /dev/null
        true && python run.py --d >> log.txt 2>&1 || python run.py --never
        cat <<END | grep x && python run.py --e
        x
END
        cat <<END > out.txt && python run.py --f
        x
END
        """,
    "groups behind && and ||": """
        [ 1 = 2 ] && { python run.py --no; python run.py --nor; }
        [ 1 = 1 ] && { x=1; python run.py --yes; } || python run.py --never
        { [ 1 = 2 ]; } || python run.py --b
        ! [ 1 = 2 ] && python run.py --c
        if [ ! 1 = 2 ]; then python run.py --d; fi
        time python run.py --e
        time -p python run.py --f
        """,
    "numbers": """
        n=7
        python run.py $((n / 2)) $((n - 7)) $((0x10 * n)) $(( (n - 9) / 2 )) $(( (n - 9) % 4 ))
        python run.py $((n - 2 - 1)) $((n - 2 * 3)) $[n + 1] $((${n} * 2))
        """,
    "commands behind each other": """
        # Whether a command fails is not looked at: --never is found, too.
        true && python run.py --a; python run.py --b || python run.py --never &
        wait
        { python run.py --c; }
        ! python run.py --d
        python run.py --e >> log 2> err < /dev/null
        """,
}


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    for name in PROGRAMS:
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    return folder


def unindented(text: str) -> str:
    return re.sub(r"^ {8}", "", text, flags=re.MULTILINE).lstrip("\n")


@pytest.mark.parametrize("name", FILES)
def test_bash_starts_the_very_words_that_are_found_with(
    name: str, stubs: Path, tmp_path: Path
) -> None:
    text = unindented(FILES[name])
    folder = tmp_path / "work"
    for sub in ("code", "other"):
        (folder / sub).mkdir(parents=True)
    (folder / "run.sh").write_text(text)
    heard = tmp_path / "heard"
    environ = {"PATH": f"{stubs}:/usr/bin:/bin", "HEARD": str(heard), **ENVIRON}
    subprocess.run(["bash", "run.sh", *ARGUMENTS], cwd=folder, env=environ, capture_output=True)
    found = [
        ([word.text for word in one.words], (folder / one.folder).resolve(), cards_of(one))
        for one in commands_of(text, "run.sh", arguments=ARGUMENTS, environ=ENVIRON)
        if one.words[0].text in PROGRAMS and one.words[-1].text != "--never"
    ]
    started = heard_by(heard)
    assert started
    assert found == started


def cards_of(one: ShellCommand) -> str:
    return one.cards.text if one.cards else ""


def heard_by(path: Path) -> list[tuple[list[str], Path, str]]:
    started, words = [], list[str]()
    for word in path.read_text().split("\0")[:-1]:
        if word.endswith("\n"):
            folder, cards, _ = word.split("\n")
            started.append((words, Path(folder), cards))
            words = []
        else:
            words.append(word)
    return started


def last_word(text: str) -> Word:
    """The last word of the one Python command."""
    [found] = [one for one in commands_of(text, "run.sh") if one.words[0].text == "python"]
    return found.words[-1]


# Text -> the last word of its command, and what is missing in it.
UNKNOWN = {
    "python run.py $1": ("$1", ("$1",)),
    "d=out/$1/x; python run.py $d": ("out/$1/x", ("$1",)),
    "python run.py ${HOST}-$(date +%s)": ("$HOST-$(date +%s)", ("$HOST", "$(date +%s)")),
    "python run.py `hostname -s`": ("$(hostname -s)", ("$(hostname -s)",)),
    "python run.py ${x##*/}": ("${x##*/}", ("${x##*/}",)),
    "n=$(nproc); python run.py $((n * 2))": ("$((n * 2))", ("$((n * 2))",)),
    "python run.py 'x'` hostname`": ("x$(hostname)", ("$(hostname)",)),
    "python run.py $((9223372036854775807 + 1))": (
        "$((9223372036854775807 + 1))",
        ("$((9223372036854775807 + 1))",),
    ),
    "python run.py $((4 / 0))": ("$((4 / 0))", ("$((4 / 0))",)),
    "python run.py ${}": ("${}", ("${}",)),
    "python run.py $((2 ** 99999))": ("$((2 ** 99999))", ("$((2 ** 99999))",)),
}


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_only_a_run_would_tell_stays_as_it_is_written_and_is_listed(text: str) -> None:
    last = last_word(text)
    assert (last.text, last.missing) == UNKNOWN[text]


# Text -> the last word of its command, and the sentence on how it came about.
DOUBTED = {
    "for seed in 1 2 3; do python run.py $seed; done": ("1", "seed is 1, the first of 3 in line 1"),
    "lr=1\nif probe; then lr=2; fi\npython run.py $lr": (
        "2",
        "lr is 2, which line 2 sets under a condition",
    ),
    'case "$1" in\n  a) lr=1 ;;\n  *) lr=2 ;;\nesac\npython run.py $lr': (
        "2",
        "lr is 2, which line 3 sets under a condition",
    ),
    "lr=1\n[ -f x ] && lr=2\npython run.py $lr": (
        "2",
        "lr is 2, which line 2 sets under a condition",
    ),
    "probe || lr=2\npython run.py $lr": ("2", "lr is 2, which line 1 sets under a condition"),
    "if probe; then lr=1; else lr=2; fi; all=x$lr; python run.py $all": (
        "x2",
        "lr is 2, which line 1 sets under a condition",
    ),
}


@pytest.mark.parametrize("text", DOUBTED)
def test_what_a_condition_or_loop_decides_is_told(text: str) -> None:
    last = last_word(text)
    assert (last.text, last.doubts) == (DOUBTED[text][0], (DOUBTED[text][1],))


def test_a_command_in_the_branch_that_sets_a_variable_has_no_doubt_of_it() -> None:
    text = "if probe; then lr=1; python run.py $lr; else lr=2; fi"
    last = last_word(text)
    assert (last.text, last.doubts) == ("1", ())


# Behind a command -> its log.
LOGS = {
    "2>&1 | tee out/train.log": "out/train.log",
    "2>&1| tee -a train.log": "train.log",
    "> $dir/log.txt 2>&1 &": "logs/log.txt",
    "&> all.log": "all.log",
    "2> errors.log": None,
    "> /dev/null": None,
    "| grep loss": None,
}


@pytest.mark.parametrize("behind", LOGS)
def test_the_log_of_a_command_is_the_file_that_its_output_goes_to(behind: str) -> None:
    [_, found] = commands_of(f"dir=logs; true; python run.py --a {behind}", "run.sh")[:2]
    assert (found.log.text if found.log else None) == LOGS[behind]


def test_the_line_of_a_word_is_its_own_also_where_lines_are_continued() -> None:
    [found] = commands_of("# head\npython run.py \\\n  --a 1 \\\r\n  --b 2\n", "run.sh")
    assert [(word.text, word.line) for word in found.words][2:] == [
        ("--a", 3),
        ("1", 3),
        ("--b", 4),
        ("2", 4),
    ]


@settings(max_examples=300, deadline=None)
@given(
    st.text(
        st.sampled_from("ab1 =$\"'`\\\n;&|(){}[]<>#@:-+/*!") | st.sampled_from("fi"), max_size=40
    )
)
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for part in (text, f"if {text}\nthen python {text}\nfi", f"f() {{ {text}; }}; f {text}"):
        with contextlib.suppress(InputError):
            commands_of(part, "run.sh", arguments=("x",))


# Text -> the complaint.
UNCLOSED = {
    'a=1\npython run.py "x\n': 'run.sh:2: this " is never closed',
    "python run.py 'x": "run.sh:1: this ' is never closed",
    "\n\npython run.py $(date": "run.sh:3: this ( is never closed",
    "python run.py ${x": "run.sh:1: this { is never closed",
}


@pytest.mark.parametrize("text", UNCLOSED)
def test_what_is_never_closed_is_named_with_its_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        commands_of(text, "run.sh")
    assert str(caught.value) == UNCLOSED[text]
