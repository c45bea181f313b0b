#!/bin/sh
# Measure everything again: FOLDER gets the corpora; this folder gets results.jsonl, RESULTS.md and the pictures.
#
#     benchmarks/repeat.sh FOLDER [RUNS]
#
# Requires what README.md in this folder installs, 24 GB of memory and about 40 minutes. A tool that takes more than
# MAX_MEMORY GB (20 by default) is stopped. Finished measurements are not repeated, so an interrupted run can be
# continued; remove results.jsonl and RESULTS.md to start again. CHINESE names a file of Chinese prose, if there is one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
runs=${2:-5}
results=$here/results.jsonl report=$here/RESULTS.md
python=${PYTHON:-python}

collect() { [ -s "$1" ] || "$python" "$here/collect.py" "$@"; }
[ -s django-5.2.1.tar.gz ] || "$python" -m pip download --quiet --no-deps --no-binary :all: django==5.2.1
collect django.txt django-5.2.1.tar.gz --suffix .txt --suffix .py --suffix .po
collect english.txt django-5.2.1.tar.gz --suffix .txt
collect code.txt django-5.2.1.tar.gz --suffix .py
collect languages.txt django-5.2.1.tar.gz --suffix .po
collect words.txt django-5.2.1.tar.gz --suffix .txt --suffix .py --suffix .po --random-words 24000000
collect large.txt /usr/share /usr/lib /usr/include --bytes 1100000000
[ -s chinese-poetry-2.0.1.tgz ] || npm pack --silent chinese-poetry@2.0.1 || echo "no npm: no Chinese corpus" >&2
[ ! -s chinese-poetry-2.0.1.tgz ] || collect chinese.txt chinese-poetry-2.0.1.tgz --suffix .json --bytes 15000000

[ -s "$report" ] || cat > "$report" <<END
# Results

Written by \`benchmarks/repeat.sh\` on $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores, \
$(awk '/MemTotal/ {printf "%.0f", $2 / 1e6}' /proc/meminfo) GB of memory. [README.md](README.md) explains the columns.
The tools take turns within a table, so compare within a table only.
END

bench() { # TITLE, then the arguments of bench.py
    title=$1
    shift
    name=$(basename "$1")
    if [ ! -s "$1" ] || grep -qF "## $title" "$report"; then return; fi
    "$python" "$here/bench.py" "$@" --repeat "$runs" --json "$results" > table.md
    { printf '\n## %s\n\n```sh\npython benchmarks/bench.py' "$title"
      for word in "$@" --repeat "$runs"; do [ "$word" != "$1" ] || word=$name; case $word in *[\;\ ]*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac; done
      printf '\n```\n\n'
      cat table.md; } >> "$report"
}
most="gigatoken;gigabpe;ffbpe;rustbpe;fastokens;snaptokens;splintr;quicktok;tokie;tiktoken;tuetoken"
few="gigatoken;ffbpe;fastokens;tiktoken"
bench "Documentation, code and translations of Django, 34 MB, vocabulary of 10,000" django.txt 10000 --pattern gpt2
bench "English documentation, 7 MB, vocabulary of 10,000" english.txt 10000 --pattern cl100k --pattern o200k \
    --tools "$most"
bench "Source code, 18 MB, vocabulary of 32,000" code.txt 32000 --only training --only encoding --tools "$few"
bench "About 100 languages, 9 MB, vocabulary of 32,000" languages.txt 32000 --only training --only encoding \
    --tools "$few"
bench "Chinese poems, 15 MB, vocabulary of 32,000" chinese.txt 32000 --only training --only encoding --tools "$few"
bench "A large corpus, vocabulary of 32,000" large.txt 32000 --pattern gpt2 --only training --only encoding \
    --tools "gigatoken;gigabpe;fastokens"
runs=$(((runs + 2) / 3)) # of some minutes each
bench "24 million distinct words, 0.34 GB, vocabulary of 32,000" words.txt 32000 --pattern gpt2 --only training \
    --tools "gigatoken;gigabpe;tokenizers" --max-memory "${MAX_MEMORY:-20}"

bytes_per_token() { # TITLE, then the arguments of curve.py
    if grep -qF "## $1" "$report"; then return; fi
    printf '\n## %s\n\n' "$1" >> "$report"
    shift
    "$python" "$here/curve.py" "$@" >> "$report"
}
if [ -n "${CHINESE:-}" ]; then
    bench "Chinese prose, 14 MB, vocabulary of 10,000" "$CHINESE" 10000 --pattern gpt2 --only training \
        --tools "bpe.py, Python"
    for pattern in gpt2 qwen2 o200k cl100k llama3; do
        bytes_per_token "Bytes per token, Chinese prose, $pattern" pattern.svg Chinese="$CHINESE" --vocab-size 10000 \
            --pattern $pattern
    done
fi
set -- English=english.txt "Source code"=code.txt "100 languages"=languages.txt
[ ! -s chinese.txt ] || set -- "$@" "Chinese poems"=chinese.txt
bytes_per_token "Bytes per token on the training corpus" "$here/curve.svg" "$@"
"$python" "$here/tokens.py"
"$python" "$here/walk.py"
"$python" "$here/bars.py"
