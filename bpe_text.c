/*
 * bpe_text.c: counting the words of text, and encoding it, with the results of bpe.py, as fast as the machine allows.
 *
 * build_ffi.py compiles this file after bpe_fast.c, as one module: it uses the table of that file, and has nothing of
 * learning. bpe.py is the definition (Parts IV and VII). Read the interface first, then the rest in order:
 *
 *     bpe_rules_new("<|endoftext|>", (size_t[]){13}, 1, &bpe_patterns[0], seed, &rules);     shared by all threads
 *     bpe_words_new(seed, &words);                               one per thread
 *     bpe_words_scan(words, rules, texts, ends, n_texts);        once per slice
 *     bpe_words_get(words, 1, bytes, lengths, counts, &totals);  for bpe_learner_new
 *     bpe_encoder_new(ids, n_ids, tokens, lengths, merges, n_merges, rules, special_ids, seed, &encoder);
 *     bpe_encoder_know(encoder, words, lengths, ids, n, 0);      words that are tokens; with 1, they stay whole
 *     bpe_cache_new(encoder, &cache);                            one per thread
 *     bpe_encode(cache, texts, ends, n_texts, ids, NULL);        once per slice
 *
 * A slice is any number of texts, concatenated, and the end of each. No word reaches across an end. An example with
 * three texts, the second one empty, and a vocabulary with a token for each word:
 *     texts  "low lower" "" "newest"      ends   9 9 15
 *     after bpe_encode:                   ids    low, _lower, newest      ends  2 2 3
 *
 * THE TABLE  Words, special tokens and cached words are keys of 16 bytes in a slot of 32:
 *     key    n e w e s t . . | . . . . . . . 6     a word of up to 15 bytes, then zeros; the last byte is its length
 *     key    hash, 8 bytes   | length, 7 b.  255   a longer word, whose bytes are in the arena
 *     value  count           | offset in the arena, if the word is there
 *     value  n = 2 | new | est | . . . .           the ids of a cached word, if it is short and they fit
 *
 * PART 1, WORDS, counts words in a table, or gives them to Part 2. Patterns come as tables, which build_ffi.py makes
 * from their text. The scanner reads windows of 64 bytes with a machine of 16 states that marks where words begin:
 * two bytes are one step, and one shuffle of a register. If the machine can't decide, which is rare, walk_word reads one
 * word with the automaton, which goes back to the last place at which the word might end.
 *
 * PART 2, ENCODING, merges the pair of lowest rank, the leftmost of equal ones, until no pair has a rank. A distinct
 * word is merged once, and then cached. Words that are tokens are known from the start, and long words beyond ASCII
 * are merged in pieces, which come back more often. Most of the time for a new word goes into looking up ranks, so
 * their table is compact, and the bytes of a character become its token at once if that is safe (see index_merges).
 *
 * MEMORY  Words: 32 bytes per slot, at most 3/4 full, and the bytes of long words; two tables while one grows. Encoder:
 *         16 or 20 bytes per merge, 43 to 85 per token, and 1 MB; up to 64 MB per cache, and 28 bytes for each byte of the
 *         longest word, while it is merged.
 */

#if defined(__GNUC__) && defined(__x86_64__) && !defined(PLAIN_C)
#include <immintrin.h>
#define SSE2 1 /* all processors of this kind have it */
#elif defined(__GNUC__) && defined(__AARCH64EL__) && !defined(PLAIN_C)
#include <arm_neon.h>
#define NEON 1 /* all processors of this kind have it */
#endif

/* ---- interface: build_ffi.py gives this part to cffi ------------------------------------------------------------- */

enum bpe_text_status { /* in addition to enum bpe_status */
    BPE_USED_UP = 16,    /* the words were dropped, by choice or after an earlier error */
    BPE_BAD_UTF8,        /* the text is not UTF-8 */
    BPE_NO_TOKEN,        /* the vocabulary has no token for a byte of the text */
    BPE_TOO_MANY_TOKENS, /* for an encoder: 2^21 or more */
    BPE_LONG_WORD        /* for an encoder: 2^32 bytes or more */
};

/* A pattern, which build_ffi.py makes from its text and explains. State 0 of the automaton can't match any more, and state
   1 begins a word. A cell is 4 * the next state, + 1 if a word may end before this character, + 2 if it ends there in any
   case; then the next state is that of the next word, of which this is the first character. */
typedef struct {
    const uint16_t *blocks; /* of 256 code points each: the number of their block of classes */
    const uint8_t *classes;
    const uint16_t *cells;  /* by state: one for each class, and one for the end of the text */
    const uint16_t *ascii;  /* the same by state and byte, for the bytes below 128 */
    const uint8_t *pairs;   /* the machine's rows of 16 states: that of bytes a and b is at first[a] + second[b] */
    const uint16_t *first, *second;
    const uint8_t *cuts;    /* by the classes of two characters: whether any text can be cut between them */
    uint32_t n_classes;
    uint32_t ideographs_are_one_class; /* 1 if U+4E00 to U+9FFF all are in one */
} bpe_pattern;
extern const bpe_pattern bpe_patterns[BPE_N_PATTERNS]; /* of bpe.py, with the classes of bpe_regex_version */
extern const char *const bpe_expressions[BPE_N_PATTERNS];

typedef struct bpe_words bpe_words;     /* distinct words and how often each occurs */
typedef struct bpe_rules bpe_rules;     /* how text is cut into words; never changes, so threads can share it */
typedef struct bpe_encoder bpe_encoder; /* vocabulary and merges; the same */
typedef struct bpe_cache bpe_cache;     /* the ids of words that an encoder has met; each thread has one */

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

/* Write the words that occur at least min_count times, concatenated in any order, with their lengths and counts, and
   sum them up: distinct words and their bytes, and all occurrences. With NULL for the three arrays, only sum up. */
typedef struct { uint64_t words, bytes, all_words, all_bytes; } bpe_totals;
int bpe_words_get(const bpe_words *w, uint64_t min_count, uint8_t *bytes, uint64_t *lengths, uint64_t *counts,
                  bpe_totals *totals);

/* Count the words of n texts, concatenated; ends[i] is the end of text i, and each is at or after the one before. */
int bpe_words_scan(bpe_words *w, const bpe_rules *rules, const uint8_t *texts, const uint64_t *ends, size_t n);

/* Free the words, so that each further call returns BPE_USED_UP: after an error, and when they are handed over. */
void bpe_words_drop(bpe_words *w);

/* The vocabulary has n_ids tokens with these ids, first the 256 bytes, UINT32_MAX for a byte without a token. `tokens` has
   the bytes of all others, concatenated, and token_lengths the length of each. merges are rows of (left, right, new token)
   by rank, as indexes into ids; no pair is given twice, and no merge uses a byte without a token. special_ids are in the
   order of the special tokens of the rules, which have to stay as long as the encoder. */
int bpe_encoder_new(const uint32_t *ids, size_t n_ids, const uint8_t *tokens, const uint64_t *token_lengths,
                    const uint32_t *merges, size_t n_merges, const bpe_rules *rules, const uint32_t *special_ids,
                    const uint64_t seed[2], bpe_encoder **encoder);
void bpe_encoder_free(bpe_encoder *e);

/* Add n words, concatenated, that are tokens, with their ids. If merges make another token or several, a word is left out;
   but with stay_whole, all words stay whole. No cache may exist yet. */
int bpe_encoder_know(bpe_encoder *e, const uint8_t *words, const uint64_t *lengths, const uint32_t *ids, size_t n,
                     int stay_whole);

/* Create a cache of words for an encoder, which has to stay as long as the cache. */
int bpe_cache_new(const bpe_encoder *e, bpe_cache **cache);
void bpe_cache_free(bpe_cache *c);

/* Encode n texts, concatenated. ends[i] is the end of text i, and becomes the end of its ids. There must be room for two
   ids more than the texts have bytes. If `narrow` isn't NULL, the low 16 bits of the ids are written there, and `ids` is
   scratch space. After BPE_BAD_UTF8 and BPE_NO_TOKEN, ends[0] is the offset of a byte of the first text with an error: for
   BPE_NO_TOKEN, the first byte without a token. The cache can be used again after any error. One word of 40 MB takes
   about 10 s. */
int bpe_encode(bpe_cache *c, const uint8_t *texts, uint64_t *ends, size_t n, uint32_t *ids, uint16_t *narrow);

/* Find the last place in a window of text at which it can be cut without changing its words; 0 if there is none. No place
   is next to bytes that are not UTF-8. */
size_t bpe_last_cut(const bpe_pattern *pattern, const uint8_t *window, size_t length);

extern const char bpe_regex_version[]; /* of the package that the classes are from */
extern const char bpe_class_digest[];
extern const char bpe_source_digests[]; /* of bpe_fast.c and of this file */

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

#ifndef CACHE_WORDS
#define CACHE_WORDS ((size_t)3 << 18) /* in a cache at most: 32 MB of slots, */
#endif
#define CACHE_BYTES (CACHE_WORDS * 42) /* and as much for its arena */

enum { INLINE_MAX = 15, LONG_WORD = 255 }; /* the longest word that is a key, in bytes; the last byte of other keys */
enum { IDS_IN_SLOT = 3 };                  /* as a slot has room for */
enum { PIECE = 64 };                       /* a bit of a key's last byte, changed for the pieces of a word */
enum { BYTES_PER_WORD = 20 };              /* of text: a table gets room for as many words before text is scanned, */
enum { FITTED_WORDS = 3 << 17 };           /* but for no more than these: 2^19 slots */
enum { WINDOW = 64, READABLE = 80 };       /* bytes; READABLE leaves 16 from any place in a window */
enum { SHORT = 16 };                       /* bytes: less text is read by walk_word alone */
enum { STATE = 15, STOPPED = 15 };         /* of the machine, in a row */
enum { NO_STEP = 0x80 };                   /* a key that changes nothing, as behind the text */
enum { BEGINS = 128, BACK = 64 };          /* in the marks of a window: see find_starts */
enum { MARKED_STATE = STATE << 2 };        /* in the marks of the first of two bytes */
enum { BATCH = 128 };                      /* words that are looked up together */
enum { BATCH_ROOM = BATCH + WINDOW + 1 };  /* BATCH - 1, a word before a window, WINDOW in it, and one at the end */

/* ---- small things ------------------------------------------------------------------------------------------------ */

#if defined(__GNUC__) && !defined(PLAIN_C)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
static inline unsigned lowest_bit(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
#else
#define LIKELY(x) (x)
#define ALWAYS_INLINE static inline
#define NOINLINE
static inline unsigned lowest_bit(uint64_t x)
{
    unsigned i = 0;
    for (unsigned half = 32; half; half /= 2)
        i += x << (64 - half - i) ? 0 : half; /* skip a half without bits */
    return i;
}
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define little(x) __builtin_bswap64(x) /* a number whose first byte in memory is its lowest, or back */
#else
#define little(x) (x)
#endif

static inline uint64_t load8(const void *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

static inline uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

static inline uint64_t bits_below(unsigned n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

/* ---- words as keys ----------------------------------------------------------------------------------------------- */

/* Append bytes to the arena. */
static int keep_bytes(table *t, const void *bytes, size_t n)
{
    TRY(grow(&t->arena, &t->arena_capacity, t->arena_size + n, 1));
    memcpy(t->arena + t->arena_size, bytes, n);
    t->arena_size += n;
    return BPE_OK;
}

/* Make the key of a word of up to INLINE_MAX bytes, from 16 bytes that begin with it. */
static inline void short_key(const uint8_t *word, size_t length, uint64_t key[2])
{
    static const uint8_t keep[32] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    const uint8_t *mask = keep + 16 - length;
    key[0] = load8(word) & load8(mask);
    key[1] = (load8(word + 8) & load8(mask + 8)) | little((uint64_t)length << 56);
}

/* Make the key of a longer word: a hash and the length. Since words can have the same key, find_word compares them. */
static void long_key(const table *t, const uint8_t *word, size_t length, uint64_t key[2])
{
    const uint8_t *p = word;
    key[0] = 0;
    key[1] = little((uint64_t)LONG_WORD << 56 | length);
    for (size_t rest = length; rest; rest -= rest < 16 ? rest : 16, p += 16) {
        p = rest < 16 ? word + length - 16 : p; /* the last 16 bytes, some of them once more */
        key[0] = fold(key[0] ^ load8(p) ^ t->seed[0], load8(p + 8) ^ t->seed[1]);
    }
}

/* Make the key of a word of any length. */
static void make_key(const table *t, const uint8_t *word, size_t length, uint64_t key[2])
{
    uint8_t copy[INLINE_MAX + 1] = {0};
    if (length > INLINE_MAX)
        long_key(t, word, length, key);
    else
        short_key(memcpy(copy, word, length), length, key);
}

static inline int has_key(const slot *s, const uint64_t key[2]) { return s->key[0] == key[0] && s->key[1] == key[1]; }

/* Find the slot of a word with this key, or the empty slot for it. */
static inline slot *find_word(const table *t, const uint64_t key[2], const uint8_t *word, size_t length)
{
    for (size_t i = home_of(t, key[0], key[1]);; i = (i + 1) & (t->capacity - 1)) {
        slot *s = t->slots + i;
        if (!s->key[1] ||
            (LIKELY(has_key(s, key)) && (length <= INLINE_MAX || !memcmp(t->arena + s->where, word, length))))
            return s;
    }
}

/* Add to the count of a word with this key. */
static NOINLINE int put_word(table *t, const uint64_t key[2], const uint8_t *word, size_t length, uint64_t count)
{
    slot *s;
    TRY(make_room(t, (uint64_t)t->used + 1));
    s = find_word(t, key, word, length);
    if (!s->key[1]) {
        if (length > INLINE_MAX)
            TRY(keep_bytes(t, word, length));
        use_slot(t, s, key);
        s->where = t->arena_size - length; /* not used if the word is short */
    }
    s->count += count;
    return BPE_OK;
}

/* Get the bytes and the length of the word in a slot; the length is 0 if the slot is empty. */
static const uint8_t *word_of(const table *t, const slot *s, size_t *length)
{
    const uint8_t *bytes = (const uint8_t *)s->key;
    *length = bytes[15] == LONG_WORD ? (size_t)(little(s->key[1]) << 8 >> 8) : bytes[15];
    return bytes[15] == LONG_WORD ? t->arena + s->where : bytes;
}

/* ---- a table of words -------------------------------------------------------------------------------------------- */

struct bpe_words {
    table table;      /* without slots when the words are used up */
    uint64_t n_bytes; /* of all text and words that came in */
};

void bpe_words_drop(bpe_words *w) { free_table(&w->table); }

/* After an error the counts are incomplete: drop them all. */
static int finish_words(bpe_words *w, int status)
{
    if (status != BPE_OK)
        bpe_words_drop(w);
    return status;
}

int bpe_words_new(const uint64_t seed[2], bpe_words **words)
{
    bpe_words *w = *words = calloc(1, sizeof *w);
    return w ? new_table(&w->table, seed) : BPE_NO_MEMORY;
}

void bpe_words_free(bpe_words *w)
{
    if (w)
        free_table(&w->table);
    free(w);
}

int bpe_words_put(bpe_words *w, const uint8_t *bytes, const uint64_t *lengths, const uint64_t *counts, size_t n)
{
    table *const t = &w->table;
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
            status = put_word(t, keys[i % FEW_AHEAD], word, (size_t)lengths[i], counts[i]);
    }
    return finish_words(w, status);
}

int bpe_words_get(const bpe_words *w, uint64_t min_count, uint8_t *bytes, uint64_t *lengths, uint64_t *counts,
                  bpe_totals *totals)
{
    const table *t = &w->table;
    memset(totals, 0, sizeof *totals);
    for (const slot *s = t->slots; s && s < t->slots + t->capacity; s++) {
        size_t length;
        const uint8_t *word = word_of(t, s, &length);
        if (!length || s->count < min_count)
            continue;
        if (bytes) {
            memcpy(bytes + totals->bytes, word, length);
            lengths[totals->words] = length;
            counts[totals->words] = s->count;
        }
        totals->words++;
        totals->bytes += length;
        totals->all_words += s->count;
        totals->all_bytes += s->count * length;
    }
    if (!t->slots)
        return BPE_USED_UP;
    return BPE_OK;
}

/* ---- 1. words: windows of text ----------------------------------------------------------------------------------- */

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

typedef unsigned machine(const bpe_pattern *p, const uint8_t *keys, unsigned n, unsigned state, uint8_t *marks);

/* Take a step of the machine for each two of the first n bytes of a window, or for more. Their keys say which row has the
   next state and the marks for each of 16 states. Writes the marks of each byte (BACK counts at the first of two bytes
   only), and returns the last state. A byte of ASCII is its own key. */
#if !defined(NEON)
static unsigned run_plain(const bpe_pattern *p, const uint8_t *keys, unsigned n, unsigned state, uint8_t *marks)
{
    for (unsigned i = 0; i < n; i += 2) {
        const unsigned cell = p->pairs[p->first[keys[i]] + p->second[keys[i + 1]] + state];
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
static unsigned run_fast(const bpe_pattern *p, const uint8_t *keys, unsigned n, unsigned state, uint8_t *marks)
{
    __m128i now = _mm_set1_epi8((char)state), last = now;
    for (unsigned i = 0; i < n; i += 32) {
#pragma GCC unroll 16
        for (unsigned k = 0; k < 16; k++, keys += 2) {
            const uint8_t *row = p->pairs + p->first[keys[0]] + p->second[keys[1]];
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
static unsigned run_fast(const bpe_pattern *p, const uint8_t *keys, unsigned n, unsigned state, uint8_t *marks)
{
    uint8x16_t now = vdupq_n_u8((uint8_t)state), last = now;
    for (unsigned i = 0; i < n; i += 32) {
#pragma GCC unroll 16
        for (unsigned k = 0; k < 16; k++, keys += 2) {
            const uint8_t *row = p->pairs + p->first[keys[0]] + p->second[keys[1]];
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

/* ---- 1. words: special tokens ------------------------------------------------------------------------------------ */

struct bpe_rules {
    const bpe_pattern *pattern;
    machine *run;
    table specials;             /* the special tokens; the count of each is 1 + its index */
    size_t *lengths;            /* their different lengths, longest first, then 0 */
    unsigned least[2], most[2]; /* of their first and second bytes */
    uint8_t begins[1 << 16];    /* by two bytes: whether a special token begins with them */
};

static inline unsigned first_two(const uint8_t *text) { return (unsigned)text[0] << 8 | text[1]; }

int bpe_rules_new(const uint8_t *special, const size_t *lengths, size_t n, const bpe_pattern *pattern,
                  const uint64_t seed[2], bpe_rules **rules)
{
    bpe_rules *r = *rules = calloc(1, sizeof *r);
    if (!r)
        return BPE_NO_MEMORY;
    r->pattern = pattern;
    r->run = fastest_machine();
    TRY(new_table(&r->specials, seed));
    if (!(r->lengths = calloc(n + 1, sizeof *r->lengths)))
        return BPE_NO_MEMORY;
    for (size_t i = 0; i < n; special += lengths[i++]) {
        uint64_t key[2];
        make_key(&r->specials, special, lengths[i], key);
        assert(lengths[i] > 1 && !find_word(&r->specials, key, special, lengths[i])->key[1]);
        TRY(put_word(&r->specials, key, special, lengths[i], i + 1));
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
    free_table(&r->specials);
    free(r->lengths);
    free(r);
}

/* Find the longest special token that begins at text. Returns its length, or 0, and writes 1 + its index. */
static NOINLINE size_t special_at(const bpe_rules *r, const uint8_t *text, const uint8_t *end, size_t *special)
{
    for (const size_t *length = r->lengths; *length; length++) {
        uint64_t key[2];
        if (*length > (size_t)(end - text))
            continue;
        make_key(&r->specials, text, *length, key);
        if ((*special = (size_t)find_word(&r->specials, key, text, *length)->count))
            return *length;
    }
    return 0;
}

/* Find the first special token from text on, or the end. Writes its length and 1 + its index, or 0 for both. */
ALWAYS_INLINE const uint8_t *find_special(const bpe_rules *r, const uint8_t *text,
                                          const uint8_t *end, size_t *length, size_t *special)
{
    const unsigned least = r->least[0], next = r->least[1], most = r->most[0], next_most = r->most[1];
    const int ranges = (least ^ most) < 128 && (next ^ next_most) < 128; /* as in_range needs them */
    while (r->specials.used && end - text > 1) {
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
    *length = *special = 0;
    return end;
}

/* ---- 1. words: scanning text ------------------------------------------------------------------------------------- */

/* Decode the character at p. Returns its length in bytes, or 0 if it is not UTF-8 for Python's decoder. */
static inline unsigned decode(const uint8_t *p, const uint8_t *end, uint32_t *character)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = p[0];
    unsigned length = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if ((c >= 0x80 && c < 0xC2) || c > 0xF4 || (size_t)(end - p) < length)
        return 0;
    c &= 0xFFu >> (length + (length > 1));
    for (unsigned i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    *character = c;
    return c >= least[length] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF) ? length : 0;
}

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
    for (unsigned state = 1, cell, length;; state = cell >> 2, at += length) {
        cell = cell_at(p, state, at, end, &length);
        last = cell & 1 ? at : last;
        if (cell >> 2 == 0 || cell & 2)
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

size_t bpe_last_cut(const bpe_pattern *p, const uint8_t *window, size_t length)
{
    const uint8_t *const end = window + length, *next = end; /* next: the last character so far */
    unsigned next_class = p->n_classes;                      /* n_classes: none, or not UTF-8 */
    for (const uint8_t *at = end; at-- > window;) {
        uint32_t character = 0;
        if ((*at & 0xC0) == 0x80)
            continue;
        const unsigned size = decode(at, end, &character), class = size ? class_of(p, character) : p->n_classes;
        if (at + size == next && class < p->n_classes && next_class < p->n_classes &&
            p->cuts[class * p->n_classes + next_class])
            return (size_t)(next - window);
        next = at;
        next_class = class;
    }
    return 0;
}

/* Make the keys of a window with characters beyond ASCII (`high`: their bytes, `tail`: 80 to BF), from a copy of it. A
   character's first byte becomes C0 + its class; its other bytes, 80 to BF, change nothing. Returns the number of known
   bytes: n, or fewer if an incomplete character or bytes that are not UTF-8 follow them. */
static NOINLINE unsigned make_keys(const bpe_pattern *p, const uint8_t *window, unsigned n, size_t rest, uint64_t high,
                                   uint64_t tail, uint8_t *keys)
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
        keys[i] = (uint8_t)(0xC0 + class_of(p, character));
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
ALWAYS_INLINE void find_starts(const bpe_rules *r, const uint8_t *window, size_t rest, reading *now)
{
    const unsigned all = rest < WINDOW ? (unsigned)rest : WINDOW;
    const uint64_t high = in_range(window, 0, 0x80, 128) & bits_below(all), firsts = 0x5555555555555555u;
    const uint8_t *keys = window;
    uint8_t copy[WINDOW], marks[WINDOW] = {0};
    uint64_t tail = 0, back, moved;
    now->n = all;
    if (high) {
        tail = in_range(window, 0, 0x80, 0x40) & bits_below(all);
        keys = memcpy(copy, window, WINDOW);
        now->n = make_keys(r->pattern, window, all, rest, high, tail, copy);
        memset(copy + now->n, NO_STEP, WINDOW - now->n);
    }
    now->state = r->run(r->pattern, keys, all, now->state, marks);
    if (now->state == STOPPED) /* the marks before that are good */
        now->n = lowest_bit(in_range(marks, 0xFF ^ MARKED_STATE, 0xFF, 1) & firsts);
    else if (!now->n || (now->n < all && rest <= WINDOW))
        now->state = STOPPED; /* "a\xFF": else the a would be read again and again, since its word may still go on */
    back = in_range(marks, 0xFF ^ BACK, 0xFF, 1) & firsts;
    now->before = back & 1;
    now->starts = in_range(marks, 0, BEGINS, 128) | back >> 1;
    while ((moved = now->starts & tail)) /* to the first byte of the character */
        now->starts = (now->starts ^ moved) | moved >> 1;
}

/* A batch of words. When a word is added, its key is made, and its slot is prefetched. When the batch is full, most
   slots have arrived, and a sink looks all of them up. A sink that returns an error ends the scan. For encoding, there are
   marks between the words: a length of 0, and a key whose last byte is 0, as no word has it: 1 + the index of a special
   token, or 0 for the end of a text. */
typedef struct {
    uint64_t key[2];
    const uint8_t *word; /* in the text */
    size_t length, home; /* home: the index of its slot, if no other has it */
} pending;

typedef struct batch batch;
typedef int (*batch_sink)(void *state, const pending *words, size_t n);

struct batch {
    const uint8_t *text, *limit; /* the next word; the end of all texts */
    const bpe_rules *rules;
    const table *table;
    batch_sink sink;
    void *state;
    int (*add_long)(batch *b, const uint8_t *word, size_t length); /* adds a long word in pieces; NULL for counting */
    pending *words; /* BATCH_ROOM of them */
    size_t n;
};

static int end_batch(batch *b)
{
    const size_t n = b->n;
    b->n = 0;
    return b->sink(b->state, b->words, n);
}

static int add_mark(batch *b, size_t special)
{
    if (!b->add_long)
        return BPE_OK; /* when words are counted, nothing between them matters */
    b->words[b->n++] = (pending){.key = {special, little(1)}};
    return b->n < BATCH ? BPE_OK : end_batch(b);
}

/* Make the key of a word, and prefetch its slot. `readable` has the bytes of the word and can be read for 16 bytes. */
ALWAYS_INLINE void prepare(pending *p, const table *t, const uint8_t *word, const uint8_t *readable, size_t length)
{
    if (LIKELY(length <= INLINE_MAX))
        short_key(readable, length, p->key);
    else
        long_key(t, word, length, p->key);
    p->word = word;
    p->length = length;
    p->home = home_of(t, p->key[0], p->key[1]);
    PREFETCH(t->slots + p->home);
}

ALWAYS_INLINE int add_word(batch *b, pending **next, table *t, const uint8_t *word, const uint8_t *readable,
                           size_t length)
{
    int status;
    if (LIKELY(length <= INLINE_MAX) || !b->add_long || word[length - 1] < 0x80) { /* those that end in ASCII come back */
        prepare((*next)++, t, word, readable, length);
        return BPE_OK;
    }
    b->n = (size_t)(*next - b->words);
    status = b->add_long(b, word, length);
    *next = b->words + b->n;
    *t = *b->table;
    return status;
}

/* Add the words up to a special token or the end. After BPE_BAD_UTF8, b->text is the first byte that is not UTF-8. */
ALWAYS_INLINE int scan_words(batch *b, const uint8_t *end)
{
    reading now, later = {.from = b->text};
    uint8_t copy[READABLE];
    int is_read = 0; /* whether the machine has read the later window */
    while (b->text < end) {
        table t = *b->table; /* a copy stays in registers: what is stored through pointers can't change it */
        const uint8_t *word = b->text, *from, *window; /* the word begins in this window, or before it */
        const uint8_t *at; /* the next window */
        pending *next = b->words + b->n;
        size_t offset;
        now = later;
        if (!is_read && end - now.from < READABLE && end - word <= WINDOW)
            now = (reading){.from = word}; /* else 16 bytes from the word may be more than there are */
        window = from = now.from; /* or a copy, of which READABLE bytes can be read */
        if (end - from < READABLE) {
            memset(copy, NO_STEP, sizeof copy);
            window = memcpy(copy, from, (size_t)(end - from));
        }
        if (!is_read && end - from >= SHORT)
            find_starts(b->rules, window, (size_t)(end - from), &now);
        at = end - from < SHORT ? end : from + now.n;
        /* Each step of the machine waits for the one before it. Meanwhile, the processor adds the words of this window. */
        later = (reading){.from = at, .state = now.state};
        is_read = now.state != STOPPED && end - at >= READABLE;
        if (LIKELY(is_read))
            find_starts(b->rules, at, (size_t)(end - at), &later);
        if (from == word)
            now.starts &= ~(uint64_t)1; /* it is known */
        if (now.before) { /* in the window before */
            const uint8_t *to = from - 1;
            while ((*to & 0xC0) == 0x80)
                to--;
            TRY(add_word(b, &next, &t, word, word, (size_t)(to - word)));
            word = to;
        }
        offset = word < from ? 0 : (size_t)((uintptr_t)window - (uintptr_t)from);
        for (uint64_t starts = now.starts; starts; starts &= starts - 1) {
            const uint8_t *const to = from + lowest_bit(starts);
            TRY(add_word(b, &next, &t, word, word + offset, (size_t)(to - word)));
            word = to;
            offset = (size_t)((uintptr_t)window - (uintptr_t)from);
        }
        if (!LIKELY(now.state != STOPPED && at < end)) {
            do {
                const uint8_t *const to = walk_word(b->rules->pattern, word, end);
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
        size_t length, special;
        TRY(scan_words(b, find_special(b->rules, b->text, end, &length, &special)));
        if (special)
            TRY(add_mark(b, special));
        b->text += length;
    }
    return add_mark(b, 0);
}

/* Give the words of n texts, which begin at b->text, to the sink. It may replace the ends of texts whose marks it got. */
static int scan_texts(batch *b, const uint64_t *ends, size_t n)
{
    const uint8_t *const texts = b->text;
    int status = BPE_OK;
    for (size_t i = 0; i < n && status == BPE_OK; i++)
        status = scan_text(b, texts + ends[i]);
    if (status == BPE_OK || status == BPE_BAD_UTF8) /* an earlier text can have an error that is found here */
        TRY(end_batch(b));
    return status;
}

/* the sink that counts */
static int count_batch(void *state, const pending *words, size_t n)
{
    table *t = state;
    for (const pending *p = words; p < words + n; p++) {
        slot *s = t->slots + p->home;
        if (LIKELY(has_key(s, p->key) && p->length <= INLINE_MAX))
            s->count++;
        else
            TRY(put_word(t, p->key, p->word, p->length, 1));
    }
    return BPE_OK;
}

int bpe_words_scan(bpe_words *w, const bpe_rules *rules, const uint8_t *texts, const uint64_t *ends, size_t n)
{
    const size_t length = n ? (size_t)ends[n - 1] : 0;
    pending words[BATCH_ROOM];
    batch b = {.text = texts, .limit = texts + length, .rules = rules, .table = &w->table, .sink = count_batch,
               .state = &w->table, .words = words};
    const uint64_t twice = (uint64_t)w->table.used * 2; /* as many words may be new; a full table is slower */
    const uint64_t room = length / BYTES_PER_WORD > twice ? length / BYTES_PER_WORD : twice;
    int status = w->table.slots ? add_bytes(&w->n_bytes, length, 1) : BPE_USED_UP;
    if (status == BPE_OK)
        status = make_room(&w->table, lesser(room, FITTED_WORDS));
    if (status == BPE_OK)
        status = scan_texts(&b, ends, n);
    return finish_words(w, status);
}

/* ---- 2. encoding: the vocabulary --------------------------------------------------------------------------------- */

/* In this part, the id of a byte's token is the byte; the ids of tokens that merges make follow. */
enum { ID_BITS = 21, RANK_BITS = 22, BUCKET = 8, NO_RANK = 1 << RANK_BITS, NO_ID = (1 << ID_BITS) - 1 };

typedef struct { /* facts about a token so far; its bytes, if safe merges alone made it */
    uint8_t was_left, was_right, n_bytes, bytes[3];
} token_facts;

struct bpe_encoder {
    uint64_t *pairs; /* buckets of left id, right id, rank in 64 bits; all ones if empty */
    size_t n_buckets;
    uint32_t *made;    /* by rank: the token that the merge makes; NULL if each one makes 256 + its rank */
    uint32_t *outside; /* the ids of the vocabulary; UINT32_MAX for a byte without a token */
    uint32_t *special_ids;
    const bpe_rules *rules;
    table known;      /* words that merges make into one token, with its id as the count */
    table whole;      /* words that stay whole, though merges would split them; the same */
    uint64_t seed[2]; /* of the table of pairs, of known words, and of each cache */
    uint32_t byte_pairs[1 << 16]; /* the rank of each pair of bytes, or NO_RANK */
    uint32_t characters[1 << 16]; /* the token of a character of 2 or 3 bytes, if safe merges make it; or 0 */
    uint8_t neighbors[1 << 17];   /* a bit for each hash of two neighbors in a token; see are_neighbors */
};

static inline uint64_t pair_bits(uint32_t left, uint32_t right)
{
    return (uint64_t)left << (ID_BITS + RANK_BITS) | (uint64_t)right << RANK_BITS;
}

static inline size_t bucket_of(const bpe_encoder *e, uint64_t pair)
{
    return (size_t)((fold(pair >> RANK_BITS ^ e->seed[0], e->seed[1]) >> 32) * e->n_buckets >> 32);
}

/* the rank of a pair, or NO_RANK: where left and right are equal, the difference is the rank */
static inline uint32_t rank_of(const bpe_encoder *e, uint32_t left, uint32_t right)
{
    uint64_t pair = pair_bits(left, right);
    for (size_t i = bucket_of(e, pair);; i = i + 1 < e->n_buckets ? i + 1 : 0) {
        const uint64_t *b = e->pairs + i * BUCKET;
        uint64_t x = lesser(lesser(b[0] ^ pair, b[1] ^ pair), lesser(b[2] ^ pair, b[3] ^ pair));
        uint64_t y = lesser(lesser(b[4] ^ pair, b[5] ^ pair), lesser(b[6] ^ pair, b[7] ^ pair));
        x = lesser(x, y);
        if (LIKELY(x < NO_RANK || b[BUCKET - 1] == UINT64_MAX)) /* a bucket that is not full ends the search */
            return (uint32_t)lesser(x, NO_RANK);
    }
}

/* the token that a merge makes: a list would be read from slower memory, and the next ranks wait for it */
static inline uint32_t made_by(const bpe_encoder *e, uint32_t rank) { return e->made ? e->made[rank] : 256 + rank; }

/* the rank of a pair of units, as words begin with */
static inline uint32_t first_rank(const bpe_encoder *e, uint32_t left, uint32_t right)
{
    return (left | right) < 256 ? e->byte_pairs[left << 8 | right] : rank_of(e, left, right);
}

/* A safe merge makes c of a and b. If only such merges make a character, note its token. */
static void note_character(bpe_encoder *e, const token_facts *a, const token_facts *b, token_facts *c, uint32_t id)
{
    unsigned n = (unsigned)a->n_bytes + b->n_bytes;
    uint32_t character = 0;
    if (!a->n_bytes || !b->n_bytes || n > 3)
        return;
    memcpy(c->bytes, a->bytes, 3);
    memcpy(c->bytes + a->n_bytes, b->bytes, b->n_bytes);
    c->n_bytes = (uint8_t)n;
    if (decode(c->bytes, c->bytes + n, &character) == n)
        e->characters[character] = id;
}

/* Fill the tables of pairs and of characters. A merge (a, b) -> c is safe, so that it can be made whenever b follows a,
   if no earlier merge has a on its right or b on its left, and a is not b: no other merge can take one of them first.
   Nor may an earlier merge use c, as (x, c) would (another merge may make c): with c there too soon, it could take x. */
static void index_merges(bpe_encoder *e, const uint32_t *merges, uint32_t n_merges, token_facts *facts)
{
    for (size_t i = 0; i < 1 << 16; i++)
        e->byte_pairs[i] = NO_RANK;
    for (unsigned i = 0; i < 256; i++)
        facts[i] = (token_facts){0, 0, 1, {(uint8_t)i, 0, 0}};
    memset(e->pairs, 255, e->n_buckets * BUCKET * sizeof *e->pairs);
    for (uint32_t rank = 0; rank < n_merges; rank++, merges += 3) {
        const uint32_t left = merges[0], right = merges[1], made = merges[2];
        token_facts *a = facts + left, *b = facts + right, *c = facts + made;
        size_t i = bucket_of(e, pair_bits(left, right)) * BUCKET;
        if (e->made)
            e->made[rank] = made;
        while (e->pairs[i] != UINT64_MAX)
            i = i + 1 < e->n_buckets * BUCKET ? i + 1 : 0;
        e->pairs[i] = pair_bits(left, right) | rank;
        if ((left | right) < 256)
            e->byte_pairs[left << 8 | right] = rank;
        if (a != b && !a->was_right && !b->was_left && !c->was_left && !c->was_right)
            note_character(e, a, b, c, made);
        a->was_left = 1;
        b->was_right = 1;
    }
}

/* Read the unit at p: a character that safe merges make, or a byte. Returns its length. */
static inline size_t unit_at(const bpe_encoder *e, const uint8_t *p, const uint8_t *end, uint32_t *unit)
{
    uint32_t character = 0;
    const unsigned length = *p < 0x80 ? 1 : decode(p, end, &character);
    *unit = length > 1 && character <= UINT16_MAX ? e->characters[character] : 0;
    if (*unit)
        return length;
    *unit = *p;
    return 1;
}

/* Whether a token may have unit b after unit a within it; if not, a word can be cut between them. Where 天气, 今天 and 很好
   are tokens, and 气很 is in none,
       今天天气很好    is     今天 | 天气 | 很好    or rather    今天天气 | 很好    if 天天 is in a token
   Whatever merges make has whole units, since safe merges can come first, and a token that reached across the place would
   have both units within it. So each merge is on one side, and comes in the same order with and without the other. The
   units of a token are those of any word around it: UTF-8 shows where a character begins. A bit can be set by other units
   with the same hash; then the piece is longer, and its ids are the same. */
static inline size_t neighbor_bit(const bpe_encoder *e, uint32_t a, uint32_t b)
{
    return (size_t)(fold(pair_bits(a, b) ^ e->seed[1], e->seed[0]) >> 44);
}

static inline int are_neighbors(const bpe_encoder *e, uint32_t a, uint32_t b)
{
    const size_t bit = neighbor_bit(e, a, b);
    return e->neighbors[bit / 8] >> bit % 8 & 1;
}

static void index_neighbors(bpe_encoder *e, const uint8_t *at, const uint64_t *lengths, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *const end = at + lengths[i];
        for (uint32_t unit = NO_ID; at < end;) {
            const uint32_t before = unit;
            at += unit_at(e, at, end, &unit);
            const size_t bit = neighbor_bit(e, before, unit);
            e->neighbors[bit / 8] |= (uint8_t)(before == NO_ID ? 0 : 1 << bit % 8);
        }
    }
}

void bpe_encoder_free(bpe_encoder *e)
{
    if (!e)
        return;
    free(e->pairs);
    free(e->made);
    free(e->outside);
    free(e->special_ids);
    free_table(&e->known);
    free_table(&e->whole);
    free(e);
}

static uint32_t *copy_of(const uint32_t *ids, size_t n)
{
    uint32_t *copy = allocate(n, sizeof *copy);
    return copy && n ? memcpy(copy, ids, n * sizeof *copy) : copy;
}

int bpe_encoder_new(const uint32_t *ids, size_t n_ids, const uint8_t *tokens, const uint64_t *token_lengths,
                    const uint32_t *merges, size_t n_merges, const bpe_rules *rules, const uint32_t *special_ids,
                    const uint64_t seed[2], bpe_encoder **encoder)
{
    bpe_encoder *e = *encoder = calloc(1, sizeof *e);
    token_facts *facts;
    int in_order = 1; /* as after training */
    if (!e)
        return BPE_NO_MEMORY;
    if (n_ids >= NO_ID || n_merges >= NO_ID)
        return BPE_TOO_MANY_TOKENS;
    assert(n_ids >= 256);
    for (size_t i = 0; i < 3 * n_merges; i++)
        assert(merges[i] < n_ids && (merges[i] > 255 || ids[merges[i]] != UINT32_MAX));
    for (size_t i = 0; i < n_merges; i++)
        in_order &= merges[3 * i + 2] == 256 + i;
    e->rules = rules;
    memcpy(e->seed, seed, sizeof e->seed);
    TRY(new_table(&e->known, e->seed));
    TRY(new_table(&e->whole, e->seed));
    e->n_buckets = n_merges * 2 / BUCKET + 1; /* half full */
    e->pairs = allocate(e->n_buckets, BUCKET * sizeof *e->pairs);
    e->made = in_order ? NULL : allocate(n_merges, sizeof *e->made);
    e->outside = copy_of(ids, n_ids);
    e->special_ids = copy_of(special_ids, rules->specials.used);
    facts = allocate(n_ids, sizeof *facts);
    int complete = e->pairs && (e->made || in_order) && e->outside && e->special_ids && facts;
    if (complete)
        index_merges(e, merges, (uint32_t)n_merges, facts);
    index_neighbors(e, tokens, token_lengths, n_ids - 256);
    free(facts);
    return complete ? BPE_OK : BPE_NO_MEMORY;
}

/* ---- 2. encoding: one word --------------------------------------------------------------------------------------- */

enum { ON_STACK = 128 }; /* places of a word that needs no allocation */
enum { FEW = 16 };       /* ids that merge_few can merge */

typedef struct { uint32_t id, before, after; } place;

/* Set the rank of the pair at a place. Each node of the tree is the lesser of its children, so node 1 is the least. */
static inline void set_rank(uint64_t *tree, size_t places, uint32_t at, uint32_t rank)
{
    uint64_t key = tree[places + at] = (uint64_t)rank << 32 | at;
    for (size_t i = places + at; i > 1; i /= 2)
        tree[i / 2] = key = lesser(key, tree[i ^ 1]);
}

/* Merge up to FEW ids; return the number that remains. Comparing all ranks in a row takes less time than a tree. */
static size_t merge_few(const bpe_encoder *e, uint32_t *ids, size_t n)
{
    uint32_t ranks[FEW + 1]; /* of the pair that begins with each id */
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = first_rank(e, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            best = ranks[i] < ranks[best] ? i : best;
        if (ranks[best] >= NO_RANK)
            break;
        ids[best] = made_by(e, ranks[best]);
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i] = ranks[i + 1];
        }
        if (best + 1 < n)
            ranks[best] = rank_of(e, ids[best], ids[best + 1]);
        if (best)
            ranks[best - 1] = rank_of(e, ids[best - 1], ids[best]);
    }
    return n;
}

/* Merge ids, and change *n to the number that remains. They are linked, between two places with NO_ID, which is in no
   pair. A tree has a leaf for each place: the rank of the pair that begins there and then the place, so that the least
   is the leftmost pair of lowest rank. */
static int merge_ids(const bpe_encoder *e, uint32_t *ids, size_t *n)
{
    const size_t places = *n + 2, last = *n + 1;
    uint64_t small_tree[2 * ON_STACK], *tree = small_tree;
    place small[ON_STACK], *p = small;
    if (*n <= FEW) {
        *n = merge_few(e, ids, *n);
        return BPE_OK;
    }
    if (places >= UINT32_MAX)
        return BPE_LONG_WORD;
    if (places > ON_STACK) {
        if (!(tree = allocate(places, 2 * sizeof *tree + sizeof *p)))
            return BPE_NO_MEMORY;
        p = (place *)(tree + 2 * places);
    }
    for (size_t i = 0; i <= last; i++)
        p[i] = (place){i % last ? ids[i - 1] : NO_ID, (uint32_t)i - 1, (uint32_t)i + 1};
    tree[places] = tree[places + *n] = tree[places + last] = UINT64_MAX;
    for (size_t i = 1; i < *n; i++)
        tree[places + i] = (uint64_t)first_rank(e, ids[i - 1], ids[i]) << 32 | i;
    for (size_t i = places - 1; i; i--)
        tree[i] = lesser(tree[2 * i], tree[2 * i + 1]);
    while (tree[1] >> 32 < NO_RANK) {
        const uint32_t i = (uint32_t)tree[1], second = p[i].after, before = p[i].before, after = p[second].after;
        const uint32_t id = p[i].id = made_by(e, (uint32_t)(tree[1] >> 32));
        p[i].after = after;
        p[after].before = i;
        set_rank(tree, places, second, NO_RANK);
        set_rank(tree, places, i, rank_of(e, id, p[after].id));
        set_rank(tree, places, before, rank_of(e, p[before].id, id));
    }
    *n = 0;
    for (size_t i = p[0].after; i < last; i = p[i].after)
        ids[(*n)++] = p[i].id;
    if (tree != small_tree)
        free(tree);
    return BPE_OK;
}

/* Encode a word, with room for `length` ids. After BPE_NO_TOKEN, *n is the offset of the byte without a token. */
static int merge_word(const bpe_encoder *e, const uint8_t *word, size_t length, uint32_t *ids, size_t *n)
{
    size_t n_ids = 0;
    for (size_t i = 0; i < length;) {
        uint32_t unit;
        const size_t size = unit_at(e, word + i, word + length, &unit);
        if (e->outside[unit] == UINT32_MAX) {
            *n = i;
            return BPE_NO_TOKEN;
        }
        ids[n_ids++] = unit;
        i += size;
    }
    TRY(merge_ids(e, ids, &n_ids));
    for (size_t i = 0; i < n_ids; i++)
        ids[i] = e->outside[ids[i]];
    *n = n_ids;
    return BPE_OK;
}

int bpe_encoder_know(bpe_encoder *e, const uint8_t *words, const uint64_t *lengths, const uint32_t *ids, size_t n,
                     int stay_whole)
{
    uint32_t *made = NULL;
    size_t room = 0;
    int status = make_room(&e->known, n);
    for (size_t i = 0; i < n && status == BPE_OK; words += lengths[i], i++) {
        const size_t length = (size_t)lengths[i];
        uint64_t key[2];
        size_t n_made = 0;
        table *t = &e->known;
        if ((status = grow(&made, &room, length, sizeof *made)) != BPE_OK)
            break;
        status = merge_word(e, words, length, made, &n_made);
        if (status == BPE_NO_TOKEN || n_made != 1 || made[0] != ids[i])
            t = stay_whole ? &e->whole : NULL;
        if (status == BPE_NO_TOKEN)
            status = BPE_OK;
        make_key(&e->known, words, length, key);
        if (status == BPE_OK && t && length) /* the empty token is no word: its key would be that of an empty slot */
            status = put_word(t, key, words, length, ids[i]);
    }
    free(made);
    return status;
}

/* ---- 2. encoding: text ------------------------------------------------------------------------------------------- */

struct bpe_cache {
    table table;
    const bpe_encoder *encoder;
    uint32_t *ids, *out;    /* the next id goes to *out; with narrow ids, each batch begins at `ids` */
    uint16_t *narrow;
    size_t n_narrow;        /* how many have left */
    uint64_t *end;          /* of the ids of this text */
    const uint8_t *no_token; /* the byte without a token, after BPE_NO_TOKEN */
};

void bpe_cache_free(bpe_cache *c)
{
    if (c)
        free_table(&c->table);
    free(c);
}

int bpe_cache_new(const bpe_encoder *e, bpe_cache **cache)
{
    bpe_cache *c = *cache = calloc(1, sizeof *c);
    if (!c)
        return BPE_NO_MEMORY;
    c->encoder = e;
    return new_table(&c->table, e->seed);
}

static inline int fits_in_slot(size_t length, size_t n_ids) { return length <= INLINE_MAX && n_ids <= IDS_IN_SLOT; }

/* Cache ids, if there is memory: in the slot, or the word and its ids in the arena. At most half of the slots are used, as
   long as the table can grow: then most words are in their home slots. A table that is full is emptied. */
static void keep_ids(table *t, const pending *p, const uint32_t *ids, size_t n)
{
    const size_t n_bytes = fits_in_slot(p->length, n) ? 0 : p->length + n * sizeof *ids;
    const uint64_t room = lesser(t->used + t->used / 2 + 1, CACHE_WORDS); /* make_room fills 3/4 of the slots */
    slot *s;
    if (n_bytes > CACHE_BYTES)
        return;
    if (t->used >= CACHE_WORDS || t->arena_size + n_bytes > CACHE_BYTES || make_room(t, room) != BPE_OK) {
        memset(t->slots, 0, t->capacity * sizeof *t->slots);
        t->used = t->arena_size = 0;
    }
    if (n_bytes && (keep_bytes(t, p->word, p->length) != BPE_OK || keep_bytes(t, ids, n * sizeof *ids) != BPE_OK))
        return;
    s = find_word(t, p->key, p->word, p->length);
    use_slot(t, s, p->key);
    s->n_ids = (uint32_t)n;
    if (n_bytes)
        s->where = t->arena_size - n_bytes;
    else
        memcpy(s->ids, ids, n * sizeof *ids);
}

/* Find the token that a new word is, so that it need not be merged; NULL if it may be several tokens. */
static const slot *find_token(const bpe_cache *c, const pending *p)
{
    const bpe_encoder *e = c->encoder;
    const uint64_t last = p->length <= INLINE_MAX ? p->length : LONG_WORD; /* the last byte of a word's key */
    const int is_piece = little(p->key[1]) >> 56 != last;
    const uint64_t key[2] = {p->key[0], is_piece ? p->key[1] ^ little((uint64_t)PIECE << 56) : p->key[1]};
    const slot *s;
    if (e->whole.used && !is_piece && (s = find_word(&e->whole, key, p->word, p->length))->key[1])
        return s;
    /* "the" is a token: finding it takes a fifth of the time of merging t, h and e. But when as many words have been
       met as are known, few of the known ones are left to be met. */
    if (c->table.used < e->known.used && (s = find_word(&e->known, key, p->word, p->length))->key[1])
        return s;
    return NULL;
}

/* Encode a word whose ids are not in its home slot, or do what a mark says. */
static NOINLINE int encode_other(bpe_cache *c, const pending *p)
{
    const slot *s;
    size_t n;
    if (!p->length) { /* a mark */
        if (p->key[0])
            *c->out++ = c->encoder->special_ids[p->key[0] - 1];
        else
            *c->end++ = c->n_narrow + (size_t)(c->out - c->ids);
        return BPE_OK;
    }
    s = find_word(&c->table, p->key, p->word, p->length);
    n = s->n_ids;
    if (!s->key[1]) {
        const slot *token = find_token(c, p);
        int status = BPE_OK;
        n = 1;
        if (token)
            *c->out = (uint32_t)token->count;
        else
            status = merge_word(c->encoder, p->word, p->length, c->out, &n);
        if (status == BPE_NO_TOKEN)
            c->no_token = p->word + n;
        TRY(status);
        keep_ids(&c->table, p, c->out, n);
    } else if (fits_in_slot(p->length, n))
        memcpy(c->out, s->ids, n * sizeof *s->ids);
    else
        memcpy(c->out, c->table.arena + s->where + p->length, n * sizeof *s->ids);
    c->out += n;
    return BPE_OK;
}

/* the sink that encodes */
static int encode_batch(void *state, const pending *words, size_t n)
{
    bpe_cache *c = state;
    uint32_t *out = c->out;
    for (const pending *p = words; p < words + n; p++) {
        const slot *s = c->table.slots + p->home;
        if (!LIKELY(has_key(s, p->key)) && s->key[1]) /* another word has its home, so it may be in the next slot */
            s = c->table.slots + ((p->home + 1) & (c->table.capacity - 1));
        if (LIKELY(has_key(s, p->key) && fits_in_slot(p->length, s->n_ids))) {
            memcpy(out, s->ids, sizeof s->ids); /* always all: this avoids a loop */
            out += s->n_ids;
        } else {
            c->out = out;
            TRY(encode_other(c, p));
            out = c->out;
        }
    }
    if (c->narrow) { /* at once, since these ids are in the processor's cache */
        const size_t n_ids = (size_t)(out - c->ids);
        for (size_t i = 0; i < n_ids; i++)
            c->narrow[c->n_narrow + i] = (uint16_t)c->ids[i];
        c->n_narrow += n_ids;
        out = c->ids;
    }
    c->out = out;
    return BPE_OK;
}

/* Add a long word to a batch in pieces, which come back more often than it does. A piece has other keys than words. */
static int add_pieces(batch *b, const uint8_t *word, size_t length)
{
    const bpe_encoder *const e = ((bpe_cache *)b->state)->encoder;
    const uint8_t *const end = word + length, *cuts[BATCH + 1];
    uint32_t unit, before;
    if (e->whole.used) { /* a word that stays whole is not cut */
        pending whole;
        prepare(&whole, b->table, word, word, length);
        if (find_word(&e->whole, whole.key, word, length)->key[1]) {
            if (b->n >= BATCH)
                TRY(end_batch(b));
            b->words[b->n++] = whole;
            return BPE_OK;
        }
    }
    for (const uint8_t *at = word + unit_at(e, word, end, &unit); word < end;) {
        size_t n = 0;
        while (at < end && n < BATCH) { /* without a branch for each cut, which is hard to predict */
            before = unit;
            cuts[n] = at;
            at += unit_at(e, at, end, &unit);
            n += !are_neighbors(e, before, unit);
        }
        if (at == end)
            cuts[n++] = end;
        for (size_t i = 0; i < n; word = cuts[i++]) {
            if (b->n >= BATCH)
                TRY(end_batch(b));
            pending *p = b->words + b->n++;
            p->word = word;
            p->length = (size_t)(cuts[i] - word);
            if (p->length > INLINE_MAX || b->limit - word <= INLINE_MAX)
                make_key(b->table, word, p->length, p->key);
            else
                short_key(word, p->length, p->key);
            p->key[1] ^= little((uint64_t)PIECE << 56);
            p->home = home_of(b->table, p->key[0], p->key[1]);
            PREFETCH(b->table->slots + p->home);
        }
    }
    return BPE_OK;
}

int bpe_encode(bpe_cache *c, const uint8_t *texts, uint64_t *ends, size_t n, uint32_t *ids, uint16_t *narrow)
{
    const size_t length = n ? (size_t)ends[n - 1] : 0;
    pending words[BATCH_ROOM];
    batch b = {.text = texts, .limit = texts + length, .rules = c->encoder->rules, .table = &c->table,
               .sink = encode_batch, .state = c, .add_long = add_pieces, .words = words};
    int status;
    c->ids = c->out = ids;
    c->narrow = narrow;
    c->n_narrow = 0;
    c->end = ends;
    (void)make_room(&c->table, lesser(length / BYTES_PER_WORD * 2, FITTED_WORDS)); /* or it stays as it is */
    status = scan_texts(&b, ends, n);
    if (status == BPE_NO_TOKEN || status == BPE_BAD_UTF8)
        ends[0] = (uint64_t)((status == BPE_NO_TOKEN ? c->no_token : b.text) - texts);
    return status;
}
