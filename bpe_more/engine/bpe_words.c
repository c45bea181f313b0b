/*
 * bpe_words.c: finding the words of text, and counting them, with the results of bpe.py (Part IV).
 *
 * It uses bpe_shared.c (keys, batches) and the table of bpe_fast.c. bpe_encode.c uses scan_texts, which gives the words of
 * text to a sink. Read the interface first, then the rest in order:
 *
 *     bpe_rules_new("<|endoftext|>", (size_t[]){13}, 1, &bpe_patterns[0], seed, &rules);     shared by all threads
 *     bpe_words_new(seed, &words);                               one per thread
 *     bpe_words_scan(words, rules, texts, ends, n_texts);        once per slice
 *     bpe_words_get(words, 1, bytes, lengths, counts, &totals);  for bpe_learner_new
 *
 * Patterns come as tables: patterns/automaton.py makes an automaton from their text, and patterns/machine.py the tables.
 * The scanner, scan_words, reads windows of 64 bytes with a machine of 16 states (run_plain or run_fast) that marks where
 * words begin: two bytes are one step, and one shuffle of a register; find_starts reads the marks. If the machine can't
 * decide, which is rare, walk_word reads one word with the automaton, which goes back to the last place at which the word
 * might end.
 *
 * MEMORY  32 bytes per slot, at most 3/4 full, and the bytes of long words; two tables while one grows; 32 bytes per word
 *         in bpe_words_get. Rules have 128 KB for each step of a pattern, and 64 KB.
 */

#if defined(__GNUC__) && defined(__x86_64__) && !defined(PLAIN_C)
#include <immintrin.h>
#define SSE2 1 /* all processors of this kind have it */
#elif defined(__GNUC__) && defined(__AARCH64EL__) && !defined(PLAIN_C)
#include <arm_neon.h>
#define NEON 1 /* all processors of this kind have it */
#endif

/* ---- interface: build_ffi.py gives this part to cffi ------------------------------------------------------------- */

/* A pattern: automaton.py explains the automaton, and machine.py the machine. State 0 of the automaton can't match any
   more, and state 1 begins a word. A cell is 2 * the next state, + 1 if a word may end before this character. */
typedef struct bpe_pattern {
    const uint16_t *blocks; /* of 256 code points each: the number of their block of classes */
    const uint8_t *classes;
    const uint16_t *cells;  /* by state: one for each class, and one for the end of the text */
    const uint16_t *ascii;  /* the same by state and byte, for the bytes below 128 */
    const uint8_t *pairs;   /* the machine: for each two kinds of symbols, a row of 16 states */
    const uint8_t *kinds;   /* by symbol: its class, or n_classes for a symbol that changes nothing */
    const uint8_t *cuts;    /* by the classes of two characters: 1 if any text can be cut between them; 2 if a cut there
                               may divide a word, but changes nothing else */
    uint32_t n_classes;
    uint32_t ideographs_are_one_class;  /* 1 if U+4E00 to U+9FFF all are in one */
    const struct bpe_pattern *earlier;  /* the step before this one, whose words this one splits; or NULL */
} bpe_pattern;
extern const bpe_pattern bpe_patterns[]; /* the named patterns of bpe.py, with the classes of bpe_regex_version;
                                            engine/__init__.py writes these tables when C is built */
extern const char bpe_expressions[];     /* theirs, each in a line */

typedef struct bpe_words bpe_words; /* distinct words and how often each occurs */
typedef struct bpe_rules bpe_rules; /* how text is cut into words; never changes, so threads can share it */

/* Create the rules of a pattern, which has to stay as long as they do, and of n different special tokens, concatenated,
   each of two bytes or more. The seed is two random numbers, kept secret. Functions that create something write a handle,
   or NULL, even after an error: free it. */
int bpe_rules_new(const uint8_t *specials, const size_t *lengths, size_t n, const bpe_pattern *pattern,
                  const uint64_t seed[2], bpe_rules **rules);
void bpe_rules_free(bpe_rules *r);

/* Create an empty table of words. */
int bpe_words_new(const uint64_t seed[2], bpe_words **words);
void bpe_words_free(bpe_words *w);

/* Add n words and their counts. The words are concatenated. The table gets room for n new words at once. */
int bpe_words_put(bpe_words *w, const uint8_t *bytes, const uint64_t *lengths, const uint64_t *counts, size_t n);

/* Sum up the words that occur at least min_count times: distinct words and their bytes, and all occurrences. Unless the
   three arrays are NULL, write these words, concatenated, by descending count, with their lengths and counts. */
typedef struct { uint64_t words, bytes, all_words, all_bytes; } bpe_totals;
int bpe_words_get(const bpe_words *w, uint64_t min_count, uint8_t *bytes, uint64_t *lengths, uint64_t *counts,
                  bpe_totals *totals);

/* Count the words of n texts, concatenated; ends[i] is the end of text i, and each is at or after the one before. */
int bpe_words_scan(bpe_words *w, const bpe_rules *rules, const uint8_t *texts, const uint64_t *ends, size_t n);

/* Return the number of special tokens in n texts. */
uint64_t bpe_count_specials(const bpe_rules *rules, const uint8_t *texts, const uint64_t *ends, size_t n);

/* Find the last place in a window of text at which it can be cut without changing its words; 0 if there is none. No place
   is next to bytes that are not UTF-8. */
size_t bpe_last_cut(const bpe_pattern *pattern, const uint8_t *window, size_t length);

extern const char bpe_regex_version[]; /* of the package that the classes are from */
extern const char bpe_class_digest[];

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

enum { READABLE = 80 };               /* bytes: a window, and 16 more, which can be read from any place in it */
enum { SHORT = 16 };                  /* bytes: less text is read by walk_word alone */
enum { STATE = 15, STOPPED = 15 };    /* of the machine, in a row */
enum { N_SYMBOLS = 256 };             /* that the machine reads: bytes, see make_symbols */
enum { NOTHING = 0x80 };              /* a symbol that changes nothing, as after the text */
enum { BEGINS = 128, BACK = 64 };     /* in the marks of a window: see run_plain, find_starts */
enum { MARKED_STATE = STATE << 2 };   /* in the marks of the first of two bytes */

#if defined(__GNUC__) && !defined(PLAIN_C)
static inline unsigned lowest_bit(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
#else
static inline unsigned lowest_bit(uint64_t x)
{
    unsigned i = 0;
    for (unsigned half = 32; half; half /= 2)
        i += x << (64 - half - i) ? 0 : half; /* skip a half without bits */
    return i;
}
#endif

static inline uint64_t bits_below(unsigned n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

/* ---- a table of words -------------------------------------------------------------------------------------------- */

struct bpe_words {
    word_table words; /* without slots when they are used up */
    uint64_t n_bytes; /* of all text and words that came in */
};

/* After an error the counts are incomplete: drop them all, so that each further call returns BPE_USED_UP. */
static int finish_words(bpe_words *w, int status)
{
    if (status != BPE_OK)
        free_words(&w->words);
    return status;
}

int bpe_words_new(const uint64_t seed[2], bpe_words **words)
{
    bpe_words *w = *words = calloc(1, sizeof *w);
    return w ? new_table(&w->words.table, seed) : BPE_NO_MEMORY;
}

void bpe_words_free(bpe_words *w)
{
    if (w)
        free_words(&w->words);
    free(w);
}

int bpe_words_put(bpe_words *w, const uint8_t *bytes, const uint64_t *lengths, const uint64_t *counts, size_t n)
{
    table *const t = &w->words.table;
    int status = t->slots ? make_room(t, (uint64_t)t->used + n) : BPE_USED_UP;
    uint64_t keys[FEW_AHEAD][2];
    size_t made = 0; /* keys so far: for some words ahead, so that memory has time to fetch their slots */
    const uint8_t *word = bytes;
    for (size_t i = 0; i < n && status == BPE_OK; word += lengths[i++]) {
        for (; made < n && made < i + FEW_AHEAD; bytes += lengths[made++]) {
            uint64_t *key = keys[made % FEW_AHEAD];
            make_key(t, bytes, (size_t)lengths[made], key);
            PREFETCH(t->slots + home_of(t, key[0], key[1]));
        }
        status = add_bytes(&w->n_bytes, lengths[i], counts[i]);
        if (status == BPE_OK && lengths[i] && counts[i])
            status = put_word(&w->words, keys[i % FEW_AHEAD], word, counts[i]);
    }
    return finish_words(w, status);
}

typedef struct { uint64_t count; const slot *slot; } counted;

/* Sort by descending count: by each byte of the counts, the lowest one first. Returns the block with the result. */
static counted *sort_counts(counted *from, counted *to, size_t n, uint64_t most)
{
    for (unsigned shift = 0; shift < 64 && most >> shift; shift += 8) {
        size_t places[257] = {0}; /* by 255 - the byte, the place of the next one */
        counted *const sorted = to;
        for (size_t i = 0; i < n; i++)
            places[256 - (from[i].count >> shift & 255)]++;
        for (size_t i = 1; i < 256; i++)
            places[i] += places[i - 1];
        for (size_t i = 0; i < n; i++)
            to[places[255 - (from[i].count >> shift & 255)]++] = from[i];
        to = from;
        from = sorted;
    }
    return from;
}

int bpe_words_get(const bpe_words *w, uint64_t min_count, uint8_t *bytes, uint64_t *lengths, uint64_t *counts,
                  bpe_totals *totals)
{
    const table *const t = &w->words.table;
    const slot *const end = t->slots + t->capacity;
    counted *found = NULL, *sorted = NULL;
    uint64_t most = 0;
    memset(totals, 0, sizeof *totals);
    if (!t->slots)
        return BPE_USED_UP;
    if (bytes && !(found = allocate(t->used, 2 * sizeof *found))) /* half of it for sort_counts */
        return BPE_NO_MEMORY;
    for (const slot *s = t->slots; s < end; s++) {
        const size_t length = length_of(s->key);
        if (!length || s->count < min_count)
            continue;
        if (found)
            found[totals->words] = (counted){s->count, s};
        most = s->count > most ? s->count : most;
        totals->words++;
        totals->bytes += length;
        totals->all_words += s->count;
        totals->all_bytes += s->count * length;
    }
    if (found)
        sorted = sort_counts(found, found + t->used, totals->words, most);
    for (size_t i = 0; sorted && i < totals->words; bytes += lengths[i++]) {
        const slot *const s = sorted[i].slot;
        if (i + AHEAD < totals->words)
            PREFETCH(sorted[i + AHEAD].slot);
        lengths[i] = length_of(s->key);
        counts[i] = s->count;
        memcpy(bytes, lengths[i] > INLINE_MAX ? w->words.arena + s->where : (const uint8_t *)s->key, (size_t)lengths[i]);
    }
    free(found);
    return BPE_OK;
}

/* ---- windows of text --------------------------------------------------------------------------------------------- */

/* Find the bytes of the window at p that are first to first + n - 1 once the bits of `with` are set in them; all of
   that range is on one side of 128. Wider vectors (AVX2, AVX-512), chosen at run time, made whole trainings 0 to 5 %
   faster. */
#if defined(NEON)
ALWAYS_INLINE uint64_t in_range(const uint8_t *p, unsigned with, unsigned first, unsigned n)
{
    const uint8x16_t weights = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u)); /* a bit for each of 8 bytes */
    uint8x16_t part[4], sum;
    for (unsigned i = 0; i < 4; i++) {
        uint8x16_t v = vorrq_u8(vld1q_u8(p + 16 * i), vdupq_n_u8((uint8_t)with));
        v = vsubq_u8(v, vdupq_n_u8((uint8_t)first));
        part[i] = vandq_u8(vcltq_u8(v, vdupq_n_u8((uint8_t)n)), weights);
    }
    sum = vpaddq_u8(vpaddq_u8(part[0], part[1]), vpaddq_u8(part[2], part[3])); /* of neighbors, three times */
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}
#elif defined(SSE2)
ALWAYS_INLINE uint64_t in_range(const uint8_t *p, unsigned with, unsigned first, unsigned n)
{
    const __m128i set = _mm_set1_epi8((char)with), shift = _mm_set1_epi8((char)(first - 128));
    const __m128i limit = _mm_set1_epi8((char)(n - 128)); /* comparisons are signed, so the range moves to -128 */
    uint64_t bits = 0;
    for (unsigned i = 0; i < WINDOW; i += 16) {
        __m128i v = _mm_or_si128(_mm_loadu_si128((const void *)(p + i)), set);
        bits |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpgt_epi8(limit, _mm_sub_epi8(v, shift))) << i;
    }
    return bits;
}
#else
ALWAYS_INLINE uint64_t in_range(const uint8_t *p, unsigned with, unsigned first, unsigned n)
{
    const uint64_t ones = 0x0101010101010101u, tops = ones * 0x80, flip = first < 128 ? 0 : tops;
    uint64_t bits = 0;
    for (unsigned i = 0; i < WINDOW; i += 8) {
        uint64_t v = (little(load8(p + i)) | ones * with) ^ flip;
        uint64_t from = (v | tops) - ones * (first & 127);     /* the top bit stays where byte >= first */
        uint64_t to = (v | tops) - ones * ((first & 127) + n); /* and here where byte >= first + n */
        bits |= ((from & ~to & ~v & tops) >> 7) * 0x0102040810204080u >> 56 << i; /* eight bits side by side */
    }
    return bits;
}
#endif

typedef unsigned machine(const uint8_t *pairs, const uint16_t *rows, const uint8_t *symbols, unsigned n, unsigned state,
                         uint8_t *marks);

static inline const uint8_t *row_at(const uint8_t *pairs, const uint16_t *rows, const uint8_t *symbols)
{
    return pairs + rows[symbols[0] | (unsigned)symbols[1] << 8];
}

/* Take a step of the machine for each two of the first n symbols of a window, or for more. The two say which row has the
   next state and the marks for each of 16 states. Writes the marks of each symbol: those of a cell, shifted by 2 for the
   first and by 1 for the second. In a cell, BACK of the second is the bit of BEGINS of the first, which is the same place,
   so BACK at a second symbol means nothing new. Returns the last state. */
#if !defined(NEON)
static unsigned run_plain(const uint8_t *pairs, const uint16_t *rows, const uint8_t *symbols, unsigned n, unsigned state,
                          uint8_t *marks)
{
    for (unsigned i = 0; i < n; i += 2) {
        const unsigned cell = row_at(pairs, rows, symbols + i)[state];
        marks[i] = (uint8_t)(cell << 2);
        marks[i + 1] = (uint8_t)(cell << 1);
        state = cell & STATE;
    }
    return state;
}
#endif

/* The same with a row in a register: one shuffle is a step. All 16 bytes of `now` are the last cell; `last` has the last
   16 cells, in order. */
#if defined(SSE2)
__attribute__((target("avx")))
static unsigned run_fast(const uint8_t *pairs, const uint16_t *rows, const uint8_t *symbols, unsigned n, unsigned state,
                         uint8_t *marks)
{
    __m128i now = _mm_set1_epi8((char)state), last = now;
    for (unsigned i = 0; i < n; i += 32) {
#pragma GCC unroll 16
        for (unsigned k = 0; k < 16; k++, symbols += 2) {
            const uint8_t *row = row_at(pairs, rows, symbols);
            now = _mm_shuffle_epi8(_mm_loadu_si128((const void *)row), now); /* by the low 4 bits: none is above 127 */
            last = _mm_alignr_epi8(now, last, 1);
        }
        const __m128i first = _mm_slli_epi16(last, 2), second = _mm_slli_epi16(last, 1); /* some bits 0, 1 are wrong */
        _mm_storeu_si128((void *)(marks + i), _mm_unpacklo_epi8(first, second));
        _mm_storeu_si128((void *)(marks + i + 16), _mm_unpackhi_epi8(first, second));
    }
    return (unsigned)_mm_cvtsi128_si32(now) & STATE;
}
#elif defined(NEON)
static unsigned run_fast(const uint8_t *pairs, const uint16_t *rows, const uint8_t *symbols, unsigned n, unsigned state,
                         uint8_t *marks)
{
    uint8x16_t now = vdupq_n_u8((uint8_t)state), last = now;
    for (unsigned i = 0; i < n; i += 32) {
#pragma GCC unroll 16
        for (unsigned k = 0; k < 16; k++, symbols += 2) {
            const uint8_t *row = row_at(pairs, rows, symbols);
            now = vqtbl1q_u8(vld1q_u8(row), vandq_u8(now, vdupq_n_u8(STATE)));
            last = vextq_u8(last, now, 1);
        }
        const uint8x16x2_t both = {{vshlq_n_u8(last, 2), vshlq_n_u8(last, 1)}};
        vst2q_u8(marks + i, both); /* interleaved */
    }
    return vgetq_lane_u8(now, 0) & STATE;
}
#endif

static machine *fastest_machine(void)
{
#if defined(SSE2)
    return __builtin_cpu_supports("avx") ? run_fast : run_plain;
#elif defined(NEON)
    return run_fast;
#else
    return run_plain;
#endif
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

struct bpe_rules {
    const bpe_pattern *pattern;
    machine *run;
    uint16_t *rows;             /* for each step of the pattern, the last one first: by two symbols, their row in pairs */
    word_table specials;        /* the special tokens; the count of each is 1 + its index */
    size_t *lengths;            /* their different lengths, longest first, then 0 */
    unsigned least[2], most[2]; /* of their first and second bytes */
    uint8_t begins[1 << 16];    /* by two bytes: whether a special token begins with them */
};

static inline unsigned first_two(const uint8_t *text) { return (unsigned)text[0] << 8 | text[1]; }

/* The row of two symbols in one look-up, not two and a sum: the machine takes a third fewer instructions. */
static int index_rows(bpe_rules *r)
{
    size_t n_steps = 0;
    for (const bpe_pattern *p = r->pattern; p; p = p->earlier)
        n_steps++;
    uint16_t *row = r->rows = allocate(n_steps * N_SYMBOLS * N_SYMBOLS, sizeof *r->rows);
    if (!row)
        return BPE_NO_MEMORY;
    for (const bpe_pattern *p = r->pattern; p; p = p->earlier)
        for (unsigned second = 0; second < N_SYMBOLS; second++)
            for (unsigned first = 0; first < N_SYMBOLS; first++)
                *row++ = (uint16_t)(16 * ((p->n_classes + 1) * p->kinds[first] + p->kinds[second]));
    return BPE_OK;
}

int bpe_rules_new(const uint8_t *special, const size_t *lengths, size_t n, const bpe_pattern *pattern,
                  const uint64_t seed[2], bpe_rules **rules)
{
    bpe_rules *r = *rules = calloc(1, sizeof *r);
    if (!r)
        return BPE_NO_MEMORY;
    r->pattern = pattern;
    r->run = fastest_machine();
    TRY(index_rows(r));
    TRY(new_table(&r->specials.table, seed));
    if (!(r->lengths = calloc(n + 1, sizeof *r->lengths)))
        return BPE_NO_MEMORY;
    for (size_t i = 0; i < n; special += lengths[i++]) {
        uint64_t key[2];
        make_key(&r->specials.table, special, lengths[i], key);
        assert(lengths[i] > 1 && !find_word(&r->specials, key, special)->key[1]);
        TRY(put_word(&r->specials, key, special, i + 1));
        for (unsigned k = 0; k < 2; k++) {
            r->least[k] = i && r->least[k] < special[k] ? r->least[k] : special[k];
            r->most[k] = r->most[k] > special[k] ? r->most[k] : special[k];
        }
        r->begins[first_two(special)] = 1;
        size_t moved = lengths[i]; /* insert this length, unless it is there */
        for (size_t *place = r->lengths; *place != moved; place++) {
            const size_t here = *place;
            *place = here > moved ? here : moved;
            moved = here > moved ? moved : here;
        }
    }
    return BPE_OK;
}

void bpe_rules_free(bpe_rules *r)
{
    if (!r)
        return;
    free_words(&r->specials);
    free(r->lengths);
    free(r->rows);
    free(r);
}

/* Find the longest special token that begins at text. Returns its length, or 0, and writes 1 + its index. */
static NOINLINE size_t special_at(const bpe_rules *r, const uint8_t *text, const uint8_t *end, uint32_t *special)
{
    for (const size_t *length = r->lengths; *length; length++)
        if (*length <= (size_t)(end - text) && find_id(&r->specials, text, *length, special))
            return *length;
    return 0;
}

/* Find the first special token from text on, or the end. Writes its length and 1 + its index, or 0 for both. */
ALWAYS_INLINE const uint8_t *find_special(const bpe_rules *r, const uint8_t *text, const uint8_t *end, size_t *length,
                                          uint32_t *special)
{
    const unsigned least = r->least[0], next = r->least[1], most = r->most[0], next_most = r->most[1];
    const int ranges = (least ^ most) < 128 && (next ^ next_most) < 128; /* as in_range needs them */
    while (r->specials.table.used && end - text > 1) {
        const size_t rest = (size_t)(end - text) - 1;
        const unsigned n = rest < WINDOW ? (unsigned)rest : WINDOW;
        uint64_t places = bits_below(n);
        if (ranges && rest > WINDOW && (places = in_range(text, 0, least, most - least + 1)))
            places &= in_range(text + 1, 0, next, next_most - next + 1);
        for (; places; places &= places - 1) {
            const uint8_t *place = text + lowest_bit(places);
            if (r->begins[first_two(place)] && (*length = special_at(r, place, end, special)))
                return place;
        }
        text += n;
    }
    *length = 0;
    *special = 0;
    return end;
}

/* ---- scanning text ----------------------------------------------------------------------------------------------- */

static inline unsigned class_of(const bpe_pattern *p, uint32_t character)
{
    return p->classes[(size_t)p->blocks[character >> 8] << 8 | (character & 0xFF)];
}

/* Get the cell of the character at `at`, whose length it writes. Bytes that are not UTF-8 are like the end. */
ALWAYS_INLINE unsigned cell_at(const bpe_pattern *p, unsigned state, const uint8_t *at, const uint8_t *end,
                               unsigned *length)
{
    uint32_t character = 0;
    *length = 1;
    if (LIKELY(at < end && *at < 0x80))
        return p->ascii[state << 7 | *at];
    *length = at < end ? decode(at, end, &character) : 0;
    return p->cells[state * (p->n_classes + 1) + (*length ? class_of(p, character) : p->n_classes)];
}

/* Find the end of the match that begins at text: the last place at which it might end. Returns text if there is none. */
static const uint8_t *end_of_match(const bpe_pattern *p, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *at = text, *last = text;
    for (unsigned state = 1, cell, length;; state = cell >> 1, at += length) {
        cell = cell_at(p, state, at, end, &length);
        last = cell & 1 ? at : last;
        if (cell >> 1 == 0)
            return last;
    }
}

/* Find the end of the word at text. Text that the pattern doesn't match is a word, too, up to the next match. Returns text
   if it begins with bytes that are not UTF-8. */
static const uint8_t *walk_word(const bpe_pattern *p, const uint8_t *text, const uint8_t *end)
{
    uint32_t character;
    const uint8_t *at = end_of_match(p, text, end);
    if (at > text)
        return at;
    for (unsigned length; at < end && (length = decode(at, end, &character)); at += length)
        if (at > text && end_of_match(p, at, end) > at)
            break;
    return at;
}

/* What `cuts` says of two characters: what the first step says that isn't 2. A place at which that one ends a word is no
   place in a word of later steps. */
static unsigned cut_between(const bpe_pattern *p, uint32_t before, uint32_t after)
{
    const unsigned earlier = p->earlier ? cut_between(p->earlier, before, after) : 2;
    return earlier == 2 ? p->cuts[class_of(p, before) * p->n_classes + class_of(p, after)] : earlier;
}

size_t bpe_last_cut(const bpe_pattern *p, const uint8_t *window, size_t length)
{
    const uint8_t *const end = window + length, *next = end; /* next: the last character so far */
    uint32_t character = 0, next_character = 0;
    unsigned size = 0, next_size; /* 0: none, or not UTF-8 */
    for (const uint8_t *at = end; at-- > window;) {
        if ((*at & 0xC0) == 0x80)
            continue;
        next_character = character;
        next_size = size;
        size = decode(at, end, &character);
        if (size && next_size && at + size == next && cut_between(p, character, next_character) == 1)
            return (size_t)(next - window);
        next = at;
    }
    return 0;
}

/* Make the symbols of a window with characters beyond ASCII (`high`: their bytes, `tail`: 80 to BF) in `symbols`, its
   copy. A character's first byte becomes C0 + its class; its other bytes, 80 to BF, change nothing. A byte of ASCII is a
   symbol as it is. Returns the number of known bytes: n, or fewer if an incomplete character or bytes that are not UTF-8
   follow. */
static NOINLINE unsigned make_symbols(const bpe_pattern *p, const uint8_t *window, unsigned n, size_t rest, uint64_t high,
                                      uint64_t tail, uint8_t *symbols)
{
    uint64_t lead = p->ideographs_are_one_class ? in_range(window, 0, 0xE4, 6) : 0;
    if (lead) { /* U+4E00..U+9FFF: E5 to E9, or E4 and then B8 or more; two more bytes follow. They stay as they are */
        lead &= (in_range(window, 0, 0xE5, 5) | in_range(window, 0, 0xB8, 8) >> 1) & tail >> 1 & tail >> 2;
        high &= ~(lead | lead << 1 | lead << 2);
    }
    while (high) {
        uint32_t character;
        const unsigned i = lowest_bit(high);
        const unsigned length = decode(window + i, window + rest, &character);
        if (!length || i + length > n)
            return i;
        high &= ~(bits_below(length) << i);
        symbols[i] = (uint8_t)(0xC0 + class_of(p, character));
    }
    return n;
}

typedef struct { /* what the machine found in a window */
    const uint8_t *from;
    unsigned n, state; /* how many of its bytes were read, and the state after them */
    unsigned before;   /* 1 if a word begins with the last character before the window */
    uint64_t starts;   /* a bit for each byte at which a word begins */
} reading;

/* Run the machine over a window, of which `rest` bytes are text. After each two bytes, it marks what is known by then.
   With a space as dot, and the pattern ` ?\w+|\s+(?!\S)|\s`:
       text      a b    . .    c d
       BEGINS    1 0    1 0    0 0     a word begins here
       BACK      0      0      1       or one character before      words: "ab", " ", " cd"
   The state becomes STOPPED if more than one character has to be given back, or if the next state isn't one of the 15;
   then walk_word reads on from the beginning of the last word. */
ALWAYS_INLINE void find_starts(const batch *b, const uint8_t *window, size_t rest, reading *now)
{
    const unsigned all = rest < WINDOW ? (unsigned)rest : WINDOW;
    const uint64_t high = in_range(window, 0, 0x80, 128) & bits_below(all), firsts = 0x5555555555555555u;
    const uint8_t *symbols = window;
    uint8_t copy[WINDOW], marks[WINDOW] = {0};
    uint64_t tail = 0, back, moved;
    now->n = all;
    if (high) {
        tail = in_range(window, 0, 0x80, 0x40) & bits_below(all);
        symbols = memcpy(copy, window, WINDOW);
        now->n = make_symbols(b->pattern, window, all, rest, high, tail, copy);
        memset(copy + now->n, NOTHING, WINDOW - now->n);
    }
    now->state = b->rules->run(b->pattern->pairs, b->rows, symbols, all, now->state, marks);
    if (now->state == STOPPED) /* the marks before that are good */
        now->n = lowest_bit(in_range(marks, 0xFF ^ MARKED_STATE, 0xFF, 1) & firsts);
    else if (!now->n || (now->n < all && rest <= WINDOW))
        now->state = STOPPED; /* "a\xFF": else the a would be read again and again, since its word may still go on. n is 0
                                 if the window begins with bytes that are not UTF-8: walk_word reports them */
    back = in_range(marks, 0xFF ^ BACK, 0xFF, 1) & firsts;
    now->before = back & 1;
    now->starts = in_range(marks, 0, BEGINS, 128) | back >> 1;
    while ((moved = now->starts & tail)) /* to the first byte of the character */
        now->starts = (now->starts ^ moved) | moved >> 1;
}

/* Note a special token, as 1 + its index, or the end of a text, as 0. */
static int add_mark(batch *b, size_t special)
{
    if (!b->has_marks)
        return BPE_OK; /* when words are counted, nothing between them matters */
    b->words[b->n++] = (pending){.key = {special, little(1)}};
    return b->n < BATCH ? BPE_OK : end_batch(b);
}

ALWAYS_INLINE int add_word(batch *b, pending **next, table *t, const uint8_t *word, const uint8_t *readable,
                           size_t length)
{
    int status;
    /* long words that end in ASCII recur as a whole, so they are not cut in pieces */
    if (LIKELY(length <= INLINE_MAX) || !b->add_long || word[length - 1] < 0x80) {
        prepare(*next, t, word, readable, length, 0);
        ++*next;
        return BPE_OK;
    }
    b->n = (size_t)(*next - b->words);
    status = b->add_long(b, word, length);
    *next = b->words + b->n;
    *t = *b->table;
    return status;
}

/* Return a window of text, or a copy of a short one: READABLE bytes of it can be read. */
static inline const uint8_t *readable_window(const uint8_t *from, const uint8_t *end, uint8_t *copy)
{
    if (end - from >= READABLE)
        return from;
    memset(copy, NOTHING, READABLE);
    return memcpy(copy, from, (size_t)(end - from));
}

/* Add the words up to a special token or the end. After BPE_BAD_UTF8, b->text is the first byte that is not UTF-8. */
static NOINLINE int scan_words(batch *b, const uint8_t *end)
{
    reading now, later = {.from = b->text};
    uint8_t copy[READABLE];
    int is_read = 0; /* whether the machine has read the later window */
    while (b->text < end) {
        table t = *b->table; /* a copy stays in registers: what is stored through pointers can't change it */
        const uint8_t *word = b->text; /* begins in this window, or before it */
        const uint8_t *at; /* the next window */
        pending *next = b->words + b->n;
        now = later;
        if (!is_read && end - now.from < READABLE && end - word <= WINDOW)
            now = (reading){.from = word}; /* so that the copy has 16 bytes from the word on */
        const uint8_t *const from = now.from, *const window = readable_window(from, end, copy);
        if (!is_read && end - from >= SHORT)
            find_starts(b, window, (size_t)(end - from), &now);
        at = end - from < SHORT ? end : from + now.n;
        /* Each step of the machine waits for the one before it. Meanwhile, the processor adds the words of this window. */
        later = (reading){.from = at, .state = now.state};
        is_read = now.state != STOPPED && end - at >= READABLE;
        if (LIKELY(is_read))
            find_starts(b, at, (size_t)(end - at), &later);
        if (from == word)
            now.starts &= ~(uint64_t)1; /* it is known */
        if (now.before) { /* in the window before */
            const uint8_t *to = from - 1;
            while ((*to & 0xC0) == 0x80)
                to--;
            TRY(add_word(b, &next, &t, word, word, (size_t)(to - word)));
            word = to;
        }
        const size_t moved = (size_t)((uintptr_t)window - (uintptr_t)from);
        size_t offset = word < from ? 0 : moved; /* from the text to what can be read for 16 bytes */
        for (uint64_t starts = now.starts; starts; starts &= starts - 1) {
            const uint8_t *const to = from + lowest_bit(starts);
            TRY(add_word(b, &next, &t, word, word + offset, (size_t)(to - word)));
            word = to;
            offset = moved;
        }
        /* STOPPED: walk_word reads one word, and the machine starts again after it. In the last window, it reads all. */
        if (!LIKELY(now.state != STOPPED && at < end)) {
            do {
                const uint8_t *const to = walk_word(b->pattern, word, end);
                if (to == word) {
                    b->text = word;
                    return BPE_BAD_UTF8;
                }
                TRY(add_word(b, &next, &t, word, word < from ? word : window + (word - from), (size_t)(to - word)));
                word = to; /* if it is before the window, 16 bytes from it may be more than there are */
            } while (at == end && from <= word && word < end && next < b->words + BATCH_ROOM);
            later = (reading){.from = word};
        }
        b->text = word;
        b->n = (size_t)(next - b->words);
        assert(b->text <= end && b->n <= BATCH_ROOM);
        if (b->n >= BATCH)
            TRY(end_batch(b));
    }
    return BPE_OK;
}

/* Give the words of one text, up to end, to the sink. */
static int scan_text(batch *b, const uint8_t *end)
{
    while (b->text < end) {
        size_t length;
        uint32_t special;
        TRY(scan_words(b, find_special(b->rules, b->text, end, &length, &special)));
        if (special)
            TRY(add_mark(b, special));
        b->text += length;
    }
    return add_mark(b, 0);
}

/* the sink of an earlier step: each of its words is a text of the next one. A special token, which the first step finds, is
   in no word */
static int split_batch(void *state, const pending *words, size_t n)
{
    batch *const later = state;
    for (const pending *p = words; p < words + n; p++) {
        const size_t length = length_of(p->key);
        later->text = p->word;
        TRY(length ? scan_words(later, p->word + length) : add_mark(later, (size_t)p->key[0]));
    }
    return BPE_OK;
}

/* Give the words of n texts, which begin at b->text, to the sink; words of an earlier step are texts first. The sink may
   replace the ends of texts whose marks it got. After BPE_BAD_UTF8, b->text is the first byte that is not UTF-8. */
static int scan_texts(batch *b, const bpe_pattern *pattern, const uint16_t *rows, const uint64_t *ends, size_t n)
{
    const uint8_t *const texts = b->text;
    int status = BPE_OK;
    b->pattern = pattern;
    b->rows = rows;
    if (pattern->earlier) {
        pending words[BATCH_ROOM];
        batch earlier = {.text = texts, .limit = b->limit, .rules = b->rules, .table = &b->rules->specials.table,
                         .sink = split_batch, .state = b, .has_marks = b->has_marks, .words = words};
        status = scan_texts(&earlier, pattern->earlier, rows + N_SYMBOLS * N_SYMBOLS, ends, n);
        b->text = earlier.text;
    } else
        for (size_t i = 0; i < n && status == BPE_OK; i++)
            status = scan_text(b, texts + ends[i]);
    if (status == BPE_OK || status == BPE_BAD_UTF8) /* an earlier text can have an error that is found here */
        TRY(end_batch(b));
    return status;
}

/* the sink that counts */
static int count_batch(void *state, const pending *words, size_t n)
{
    word_table *w = state;
    for (const pending *p = words; p < words + n; p++) {
        slot *s = w->table.slots + p->home;
        if (LIKELY(has_key(s, p->key) && length_of(p->key) <= INLINE_MAX))
            s->count++;
        else
            TRY(put_word(w, p->key, p->word, 1));
    }
    return BPE_OK;
}

int bpe_words_scan(bpe_words *w, const bpe_rules *rules, const uint8_t *texts, const uint64_t *ends, size_t n)
{
    const size_t length = n ? (size_t)ends[n - 1] : 0;
    table *const t = &w->words.table;
    pending words[BATCH_ROOM];
    batch b = {.text = texts, .limit = texts + length, .rules = rules, .table = t, .sink = count_batch,
               .state = &w->words, .words = words};
    const uint64_t twice = (uint64_t)t->used * 2; /* as many words may be new; a full table is slower */
    const uint64_t room = length / BYTES_PER_WORD > twice ? length / BYTES_PER_WORD : twice;
    int status = t->slots ? add_bytes(&w->n_bytes, length, 1) : BPE_USED_UP;
    if (status == BPE_OK)
        status = make_room(t, lesser(room, FITTED_WORDS));
    if (status == BPE_OK)
        status = scan_texts(&b, rules->pattern, rules->rows, ends, n);
    return finish_words(w, status);
}

uint64_t bpe_count_specials(const bpe_rules *rules, const uint8_t *texts, const uint64_t *ends, size_t n)
{
    uint64_t count = 0;
    const uint8_t *text = texts;
    for (size_t i = 0; i < n; i++) {
        while (text < texts + ends[i]) {
            size_t length;
            uint32_t special;
            text = find_special(rules, text, texts + ends[i], &length, &special) + length;
            count += special > 0;
        }
    }
    return count;
}
