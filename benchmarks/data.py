"""Measure training and encoding from Parquet, JSON Lines, compressed files and strings, in turns.

    python benchmarks/data.py TEXT FOLDER [--repeat 3] [--peers 10000]

TEXT has <|endoftext|> and a newline after each document. FOLDER gets the same documents as files of each kind, a model,
and outputs; remove it afterwards. Each measurement is a process of its own: CPU seconds of all its threads and children,
and the memory of its largest process, after imports of the packages that it needs. --peers: other programs take turns
on this many documents.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
END, SIZE = "<|endoftext|>", 32_000
START = f"import sys; sys.path.insert(0, {sys.path[0]!r}); from bpe_more import Tokenizer, count_words, train_bpe\n"
STRINGS = "import pyarrow.parquet as pq\ntexts = (t for b in pq.ParquetFile('{name}.parquet', pre_buffer=False).iter_batches(500, columns=['text']) for t in b['text'].to_pylist())\n"
BATCHES = "import pyarrow.parquet as pq\ntexts = pq.ParquetFile('{name}.parquet', pre_buffer=False).iter_batches(500, columns=['text'])\n"
SOURCES = {  # what comes before the call, and its arguments
    "text file": ("", "'{name}.txt'"),
    "Parquet (zstd)": ("", "'{name}.parquet'"),
    "Parquet, batches as `texts=`": (BATCHES, "texts=texts"),
    "Parquet, through strings": (STRINGS, "texts=texts"),
    "JSON Lines": ("", "'{name}.jsonl'"),
    "`.jsonl.zst`": ("", "'{name}.jsonl.zst'"),
}
CALLS = {
    "count words": "count_words({source}, special_tokens=['<|endoftext|>'])",
    "train 32,000": "train_bpe({source}, vocab_size=32000, special_tokens=['<|endoftext|>'])",
    "encode to `.npy`": "Tokenizer.load('model').encode_files({source}, output='ids.npy', end='<|endoftext|>')",
}
PEERS = {
    "bpe_more, Parquet, train": START + "train_bpe('few.parquet', vocab_size=32000, special_tokens=['<|endoftext|>'])",
    "bpe_more, strings, train": START + STRINGS.format(name="few") + "train_bpe(texts=texts, vocab_size=32000, special_tokens=['<|endoftext|>'])",
    "gigatoken, ParquetFileSource, train": "import gigatoken; gigatoken.train_bpe(gigatoken.ParquetFileSource(['few.parquet']), 32000, ['<|endoftext|>'])",
    "gigatoken, JsonlFileSource, train": "import gigatoken; gigatoken.train_bpe(gigatoken.JsonlFileSource(['few.jsonl']), 32000, ['<|endoftext|>'])",
    "rustbpe, strings, train": STRINGS.format(name="few") + "import rustbpe; rustbpe.Tokenizer().train_from_iterator(texts, 31999, pattern={pattern!r})",
    "tokenizers, strings, train": STRINGS.format(name="few") + """from tokenizers import Tokenizer, models, pre_tokenizers, trainers
t = Tokenizer(models.BPE()); t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=32000, special_tokens=['<|endoftext|>'], show_progress=False,
                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))""",
    "bpe_more, Parquet, encode": START + "Tokenizer.load('model').encode_files('few.parquet', 'ids.npy', end='<|endoftext|>')",
    "gigatoken, ParquetFileSource, encode": """import gigatoken
t = gigatoken.Tokenizer.from_json(open('known.json', 'rb').read())
print(sum(map(len, t.encode_files(gigatoken.ParquetFileSource(['few.parquet'])))))""",
    "datasets.map, tokenizers, encode": """import datasets, transformers
t = transformers.PreTrainedTokenizerFast(tokenizer_file='model/tokenizer.json')
d = datasets.load_dataset('parquet', data_files='few.parquet', split='train', cache_dir='cache-{turn}')
d.map(lambda rows: {'ids': t(rows['text'])['input_ids']}, batched=True, num_proc=2, remove_columns=['text'])""",
}  # fmt: skip


def write(text: Path, folder: Path, few: int) -> None:
    """Write the documents as files of each kind, and train a model."""
    import pyarrow
    import pyarrow.parquet
    import zstandard

    import bpe_more

    documents = text.read_text(encoding="utf-8").split(END + "\n")[:-1]
    for name, chosen in ("all", documents), ("few", documents[:few]):
        (folder / f"{name}.txt").write_text("".join(document + END for document in chosen), encoding="utf-8", newline="")
        table = pyarrow.table({"text": chosen})
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet", compression="zstd", row_group_size=1000)
        lines = "".join(json.dumps({"text": document}, ensure_ascii=False) + "\n" for document in chosen).encode()
        (folder / f"{name}.jsonl").write_bytes(lines)
        (folder / f"{name}.jsonl.zst").write_bytes(zstandard.compress(lines))
    bpe_more.Tokenizer.train(folder / "all.txt", SIZE, [END]).save(folder / "model")
    model = json.loads((folder / "model" / "tokenizer.json").read_bytes())
    # gigatoken knows GPT-2's pattern in this spelling only
    model["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "known.json").write_text(json.dumps(model), encoding="utf-8")
    print(f"{len(documents):,} documents, {(folder / 'all.txt').stat().st_size / 1e6:.0f} MB; few: {(folder / 'few.txt').stat().st_size / 1e6:.0f} MB")


def measure(code: str, folder: Path) -> tuple[float, float, int]:
    """Run code; return (wall seconds, CPU seconds, peak memory in MB)."""
    # a process that only starts this one: its children's figures are those of the code
    outer = "import resource, subprocess, sys, time; s = time.perf_counter(); subprocess.run([sys.executable, '-W', 'ignore', '-c', sys.argv[1]], check=True, stdout=subprocess.DEVNULL)\n"
    outer += "u = resource.getrusage(resource.RUSAGE_CHILDREN); print(time.perf_counter() - s, u.ru_utime + u.ru_stime, u.ru_maxrss // 1024)"
    told = subprocess.run([sys.executable, "-c", outer, code], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if told.returncode:
        raise RuntimeError(told.stderr.strip().splitlines()[-2 if "CalledProcess" in told.stderr else -1])
    wall, cpu, memory = told.stdout.split()[-3:]
    return float(wall), float(cpu), int(memory)


def in_turns(codes: dict[str, str], folder: Path, repeat: int) -> None:
    """Measure pieces of code in turns, and print a row with the medians of each."""
    results: dict[str, list[tuple[float, float, int]]] = {name: [] for name in codes}
    for turn in range(repeat):
        for name, code in codes.items():
            try:
                results[name].append(measure(code.replace("{turn}", str(turn)), folder))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error!s:.300}", file=sys.stderr)
    print("| what | wall s | CPU s | memory, MB |\n|---|---:|---:|---:|")
    for name, rows in results.items():
        if rows:
            wall, cpu, memory = (statistics.median(column) for column in zip(*rows))
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {memory:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    if not (args.folder / "model").exists():
        write(args.text, args.folder, args.peers or 100)
    codes = {}
    for call, code in CALLS.items():
        for source, (before, argument) in SOURCES.items():
            if call == "encode to `.npy`" and argument == "texts=texts":
                argument = "None, texts=texts"
            codes[f"{call}: {source}"] = START + (before + code.format(source=argument)).replace("{name}", "all")
    in_turns(codes, args.folder, args.repeat)
    if args.peers:
        import bpe

        in_turns({name: code.replace("{pattern!r}", repr(bpe.PATTERNS["gpt2"])) for name, code in PEERS.items()}, args.folder, args.repeat)
    print(f"{time.strftime('%Y-%m-%d')}; Python {sys.version.split()[0]}; peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
