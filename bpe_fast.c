/*
 * bpe_fast.c: the same results as bpe.py, as fast as the machine allows.
 *
 * The Python engine in bpe.py is the definition; read it first, then the interface below, then Parts 1 to 3 in order.
 * Calls:   words_new, words_scan (once per text), learner_new, learner_run, words_get
 *          encoder_new, cache_new, encode (once per text)
 *
 * There is no mutable global state, so different threads can use different handles. Nothing here prints or exits.
 *
 * THE TABLE  A single open-addressing table type holds words, pairs, and the words of a cache. A slot has 32 bytes, and
 * half of them are the key; a word of up to 15 bytes is its own key:
 *     key    n e w e s t . . | . . . . . . . 6     bytes, zeros, and the length in the last byte
 *     key    hash, 8 bytes   | length, 7 b.  255   a longer word, whose bytes are in the arena
 *     key    left id, right id, 8 bytes | 1        a pair
 *     value  count 6         | offset in the arena for a word; for a pair, its count and its list
 *     value  n = 2 : new est . . . .               the ids of a cached word, if it is short and they fit
 * The hash has a secret seed, so keys that collide can't be constructed. Words leave a table sorted by descending count
 * and then by bytes, so no result depends on the seed.
 *
 * PART 1, WORDS. The scanner classifies a window of 64 bytes that begins with a word, with one bit per byte for each
 * class: letter, number, whitespace. Shifts and ands of these masks give the bits at which words begin. The next window
 * begins with the last word that was found, so no state is carried over. walk_word reads the cases that the masks can't
 * decide, character by character:
 *   - words longer than a window
 *   - whitespace beyond ASCII, and, except in gpt2, numbers beyond ASCII
 *   - in o200k, marks after characters that are not letters, and uppercase after letters without case
 *
 * PART 2, LEARNING. One array holds all distinct words, a slot for each byte, with empty slots (.) between the words.
 * The id of a token is stored in its first and in its last slot; the slots inside are empty:
 *     bytes      n e w e s t           after  e+st -> est:     seq   . n e w est . est . ...
 *     seq      . n e w e s t . ...            (st before it)             |     |
 *                                                                first slot   last slot
 * So the neighbors of a token at p are seq[p - 1] and seq[p + length], without links. Words with the same count share
 * blocks of the array, so a count per block is enough. For each pair there is an ascending list of places (the first
 * slot of the left token). An entry is stale, and is skipped, if the pair is no longer there.
 * A merge (a, b) -> c reads its list once. For each left neighbor x and right neighbor y it sums up how much the pairs
 * (x, a) and (b, y) lose and (x, c) and (c, y) gain. Then it updates the table of pairs once per distinct neighbor.
 * Counts never rise, so pairs that are too rare for any of the wanted merges are left out: the table holds all pairs
 * that occur at least `threshold` times (see new_array). If these are too many, the threshold is raised; if it turns
 * out to be too high, it is lowered, and the pairs are indexed again. The heap holds the pairs that occur at least
 * `level` times. Its counts may be too large, which is corrected when they reach the top, but never too small.
 *
 * PART 3, ENCODING. Merge the pair of lowest rank, the leftmost of equal ones, until no pair has a rank. Each distinct
 * word is merged once, and then cached. The ranks of all pairs are in a table that is small enough for the processor's
 * cache. A lookup costs more than anything else, so the bytes of a character become its token at once if that is safe
 * (see index_merges). In a word of up to 62 tokens, comparing all ranks finds the least, while new pairs are looked up.
 *
 * MEMORY  Words: 32 bytes per slot, 3/8 to 3/4 full, and the bytes of long words. Learner: 4 bytes for each byte of
 *         distinct words, and up to 12 for the lists. Encoder: 24 bytes per merge, 512 KB; up to 64 MB per cache.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__GNUC__) && defined(__x86_64__) && !defined(PLAIN_C)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,bmi,bmi2"))) /* for functions that only some processors can run */
#if !defined(NO_AVX512) /* for tests */
#define AVX512 __attribute__((target("avx512bw,avx2,bmi,bmi2")))
#endif
#elif defined(__GNUC__) && defined(__AARCH64EL__) && !defined(PLAIN_C)
#include <arm_neon.h>
#define NEON 1 /* all processors of this kind have it */
#elif defined(_MSC_VER)
#include <intrin.h>
#endif

/* ---- interface: build_ffi.py gives this part to cffi ------------------------------------------------------------- */

enum bpe_status {
    BPE_OK,
    BPE_NO_MEMORY, /* an allocation failed; words are used up, a learner or an encoder can only be freed */
    BPE_BAD_UTF8,  /* the text is not UTF-8 */
    BPE_NO_TOKEN,  /* the vocabulary has no token for a byte of the text */
    BPE_OVERFLOW,  /* a count above 2^63 - 1; 2^32 bytes or more in a word, in distinct words or in special tokens;
                      2^21 tokens or more */
    BPE_USED_UP,   /* the words have gone into a learner, or an earlier call failed: they can only be freed */
    BPE_BAD_ARGUMENT, /* an unknown pattern, a special token of one byte, fewer than 256 ids, an id out of range */
    BPE_DONE       /* no pair is left to merge, or no more merges are wanted */
};
enum bpe_pattern { BPE_GPT2, BPE_CL100K, BPE_O200K, BPE_LLAMA3, BPE_QWEN2 };

typedef struct bpe_words bpe_words;     /* distinct words and how often each occurs */
typedef struct bpe_learner bpe_learner; /* takes over the words and produces merges, a batch at a time */
typedef struct bpe_encoder bpe_encoder; /* vocabulary and merges; never changes, so threads can share one */
typedef struct bpe_cache bpe_cache;     /* the ids of words that an encoder has met; each thread has one */

/*
 * Create an empty table for text with these special tokens: n different ones, concatenated, each of two bytes or more.
 * The seed should be a secret. All functions that create something write a handle even if they return an error: it has
 * to be freed.
 */
int bpe_words_new(const uint8_t *specials, const size_t *lengths, size_t n, int pattern, const uint64_t seed[2],
                  bpe_words **words);
void bpe_words_free(bpe_words *w);

/* Count the words of a text. After BPE_BAD_UTF8, *bad_offset is the offset of the first byte that is not UTF-8. */
int bpe_words_scan(bpe_words *w, const uint8_t *text, size_t length, size_t *bad_offset);

/* Add n words and their counts, which are below 2^63. The words are concatenated. */
int bpe_words_put(bpe_words *w, const uint8_t *bytes, const uint32_t *lengths, const uint64_t *counts, size_t n);

/* Add all words of another table, which keeps them. */
int bpe_words_add(bpe_words *w, const bpe_words *other);

/*
 * Distinct words, their bytes, all their occurrences, and the bytes of all occurrences. The last two can pass 2^64, so
 * the upper and the lower halves of the counts are summed separately.
 */
typedef struct { uint64_t words, bytes, pretokens, pretokens_high, bytes_in_words, bytes_in_words_high; } bpe_totals;
void bpe_words_totals(const bpe_words *w, bpe_totals *totals);

/*
 * Write all words, concatenated, with their lengths and counts; the totals say how much room they need. Sorted by
 * descending count, then by bytes, so that the order says nothing about the hash.
 */
int bpe_words_get(const bpe_words *w, uint8_t *bytes, uint32_t *lengths, uint64_t *counts);

typedef struct { uint32_t left, right; uint64_t count, replaced; } bpe_merge;

/*
 * Take over all words of a table, which is used up afterwards. This takes about 20 ns per byte of distinct words.
 * id_of_byte holds the ids of the 256 bytes, which are 0 to 255 in any order; the first merge makes the token 256.
 * merges_wanted is the largest number of merges. A min_frequency of 0 means 1. smaller_ids is 1 for the tie rule of
 * Hugging Face's trainer.
 */
int bpe_learner_new(bpe_words *w, const uint8_t *id_of_byte, uint64_t merges_wanted, uint64_t min_frequency,
                    size_t max_token_length, int smaller_ids, bpe_learner **learner);

/*
 * Make up to `most` merges and write their number to *made. Returns BPE_DONE when no merge is left, or none is wanted,
 * and BPE_OK before that: after `most` merges, or after about 0.1 s (perhaps without any merge), so that the caller can
 * show progress and react to Ctrl-C. With more than a million frequent pairs, a call may have to index all pairs again,
 * which takes about 40 ns per byte of distinct words. Any other status than BPE_OK is returned by every further call.
 */
int bpe_learner_run(bpe_learner *l, bpe_merge *merges, size_t most, size_t *made);
void bpe_learner_free(bpe_learner *l);

/*
 * ids are those of the n_ids tokens in the vocabulary, first of the 256 bytes, UINT32_MAX for a byte without a token.
 * merges are rows of (left, right, new token) by rank, as indexes into ids; no pair is given twice, and no merge uses a
 * token that a later one makes. special_ids are in the order of the special tokens, which are given as to
 * bpe_words_new.
 */
int bpe_encoder_new(const uint32_t *ids, size_t n_ids, const uint32_t *merges, size_t n_merges, const uint8_t *specials,
                    const size_t *lengths, const uint32_t *special_ids, size_t n_specials, int pattern,
                    const uint64_t seed[2], bpe_encoder **encoder);
void bpe_encoder_free(bpe_encoder *e);

/*
 * Create a cache of words for an encoder, which has to stay as long as the cache. If `narrow` is 1, ids are 16 bits
 * wide, for which all of the vocabulary must be below 65536; otherwise they are 32 bits wide.
 */
int bpe_cache_new(const bpe_encoder *e, int narrow, bpe_cache **cache);
void bpe_cache_free(bpe_cache *c);

/* Encode a text. ids has room for length + 2 of 32 bits. The cache can be used again after any error. */
int bpe_encode(bpe_cache *c, const uint8_t *text, size_t length, void *ids, size_t *n_ids);

extern const char bpe_regex_version[]; /* of the package that the classes are from */
extern const char bpe_class_digest[];
extern const char bpe_source_digest[]; /* of this file */

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

/*
 * The class of each code point, a number of the enum below, as the regex package has it: bpe_class_index has the block
 * of 256 code points. build_ffi.py generates these tables (and the digests above), and puts them before this file.
 */
extern const uint16_t bpe_class_index[0x1100];
extern const uint8_t bpe_class_blocks[][256];
extern const int bpe_cjk_are_letters; /* 1 if U+4E00 to U+9FFF all are: a fast path relies on it */

#ifndef HUGE_FROM
#define HUGE_FROM ((size_t)2 << 20) /* the size of blocks, in bytes, from which on they get huge pages */
#endif
#ifndef CACHE_SLOTS
#define CACHE_SLOTS ((size_t)1 << 20) /* of a cache, at most, a power of two: 32 MB, and as much for its arena */
#endif
#ifndef MOST_PAIRS
#define MOST_PAIRS ((size_t)1 << 20) /* in a learner's table before its threshold rises */
#endif
#define COUNT_MAX ((uint64_t)INT64_MAX)

enum { INLINE_MAX = 15, LONG_WORD = 255 }; /* the longest word that is a key, in bytes; the last byte of other keys */
enum { ARENA_PER_SLOT = 32 };              /* the most bytes in the arena of a cache for each of its slots */
enum { FIRST_SLOTS = 1 << 12, FITTED_SLOTS = 1 << 19 }; /* of a new table, and of one for a long text */
enum { BYTES_PER_SLOT = 16 };              /* how much text a slot of that table is for */
enum { BATCH = 64 };                       /* words that are looked up together */
enum { ID_BYTES = 12 };                    /* of the ids in a slot: three of 32 bits, or six of 16 */
enum { WINDOW = 64, READABLE = 80 };       /* bytes; READABLE leaves 16 from any place in a window */
enum { AHEAD = 48 };                       /* how many places ahead memory is fetched */

/* ---- small things ------------------------------------------------------------------------------------------------ */

#if defined(__GNUC__) && !defined(PLAIN_C) /* PLAIN_C is for tests of what other compilers get */
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define PREFETCH(p) __builtin_prefetch(p)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
static inline unsigned lowest_bit(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
static inline unsigned highest_bit(uint64_t x) { return 63u - (unsigned)__builtin_clzll(x); }
#else
#define LIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
#define ALWAYS_INLINE static inline
#define NOINLINE
#if defined(_MSC_VER) && defined(_WIN64)
static inline unsigned lowest_bit(uint64_t x) { unsigned long i; _BitScanForward64(&i, x); return i; }
static inline unsigned highest_bit(uint64_t x) { unsigned long i; _BitScanReverse64(&i, x); return i; }
#else
static inline unsigned highest_bit(uint64_t x)
{
    unsigned i = 0;
    for (unsigned half = 32; half; half /= 2)
        i += x >> (i + half) ? half : 0;
    return i;
}
static inline unsigned lowest_bit(uint64_t x) { return highest_bit(x & (~x + 1)); }
#endif
#endif

#define TRY(call) /* return the status of a call unless it is BPE_OK */ \
    do { \
        const int status_of_call = (call); \
        if (status_of_call != BPE_OK) \
            return status_of_call; \
    } while (0)

static inline uint64_t load8(const void *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define little(x) __builtin_bswap64(x) /* a number whose first byte in memory is its lowest, or back */
#else
#define little(x) (x)
#endif

static inline uint64_t bits_below(unsigned n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

/* the exclusive or of both halves of the product: a hash, if one factor is secret */
static inline uint64_t fold(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__) && !defined(PLAIN_C)
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t low = (a & UINT32_MAX) * (b & UINT32_MAX), high = (a >> 32) * (b >> 32);
    uint64_t one = (a >> 32) * (b & UINT32_MAX) + (low >> 32);
    uint64_t other = (a & UINT32_MAX) * (b >> 32) + (one & UINT32_MAX);
    return (other << 32 | (low & UINT32_MAX)) ^ (high + (one >> 32) + (other >> 32));
#endif
}

/* Compare two strings of bytes: below 0, 0, above 0. */
static int compare_bytes(const uint8_t *a, size_t length_a, const uint8_t *b, size_t length_b)
{
    int order = memcmp(a, b, length_a < length_b ? length_a : length_b);
    return order ? order : (length_a > length_b) - (length_a < length_b);
}

/* Allocate n elements, all zero. Large blocks get huge pages if the system has them. */
static void *allocate(size_t n, size_t size)
{
    if (n > SIZE_MAX / 2 / size)
        return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (n * size >= HUGE_FROM) {
        const size_t huge = (size_t)2 << 20, rounded = (n * size + huge - 1) / huge * huge;
        void *block = aligned_alloc(huge, rounded);
        if (!block)
            return NULL;
        (void)madvise(block, rounded, MADV_HUGEPAGE); /* only advice */
        return memset(block, 0, n * size);
    }
#endif
    return calloc(n ? n : 1, size); /* so that NULL means one thing only */
}

/* Make room for `needed` elements in a block that grows by half. On failure, it is unchanged. */
static int grow(void *block_address, size_t *capacity, size_t needed, size_t size)
{
    void *block;
    size_t wanted = *capacity + *capacity / 2 + 64;
    if (needed <= *capacity)
        return BPE_OK;
    if (wanted < needed)
        wanted = needed;
    memcpy(&block, block_address, sizeof block);
    if (wanted > SIZE_MAX / 2 / size || !(block = realloc(block, wanted * size)))
        return BPE_NO_MEMORY;
    memcpy(block_address, &block, sizeof block);
    *capacity = wanted;
    return BPE_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t key[2]; /* key[1] is 0 in an empty slot, and only there */
    union {
        struct {
            uint64_t count, where; /* where: the offset of a long word in the arena */
        } word;
        struct {
            uint32_t n;            /* ids of a long word, or more than fit here: in the arena, after the word */
            uint8_t ids[ID_BYTES]; /* with the width of the cache's */
        } known;
        struct {
            uint64_t count;
            size_t list; /* where in a learner's lists it begins */
        } pair;
    } is;
} slot;

typedef struct {
    slot *slots;
    size_t capacity, used; /* capacity is a power of two */
    unsigned shift;        /* 64 - log2(capacity) */
    uint64_t seed[2];      /* of the hash, a secret */
    uint8_t *arena;
    size_t arena_size, arena_capacity;
} table;

static inline size_t home_of(const table *t, uint64_t key0, uint64_t key1)
{
    return (size_t)(fold(key0 ^ t->seed[0], key1 ^ t->seed[1]) >> t->shift);
}

/* Find the slot of a key, or the empty slot for it. */
static inline slot *find(const table *t, uint64_t key0, uint64_t key1)
{
    for (size_t i = home_of(t, key0, key1);; i = (i + 1) & (t->capacity - 1)) {
        slot *s = t->slots + i;
        if (LIKELY(s->key[0] == key0 && s->key[1] == key1) || !s->key[1])
            return s;
    }
}

/* Change the number of slots, a power of two; the table keeps its keys. */
static int resize(table *t, size_t capacity)
{
    table old = *t;
    slot *slots = allocate(capacity, sizeof *slots);
    if (!slots)
        return BPE_NO_MEMORY;
    t->slots = slots;
    t->capacity = capacity;
    t->shift = 64 - highest_bit(capacity);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].key[1])
            *find(t, old.slots[i].key[0], old.slots[i].key[1]) = old.slots[i];
    free(old.slots);
    return BPE_OK;
}

static inline int is_too_small(const table *t, uint64_t n) { return n >= t->capacity / 4 * 3; }

/* Add a key. Returns its slot, or NULL without memory. */
static slot *add_key(table *t, uint64_t key0, uint64_t key1)
{
    slot *s;
    if (is_too_small(t, t->used) && resize(t, 2 * t->capacity) != BPE_OK)
        return NULL;
    t->used++;
    s = find(t, key0, key1);
    s->key[0] = key0;
    s->key[1] = key1;
    return s;
}

/* Append bytes to the arena. */
static int keep_bytes(table *t, const void *bytes, size_t n)
{
    TRY(grow(&t->arena, &t->arena_capacity, t->arena_size + n + 1, 1)); /* + 1: there is a block at once */
    memcpy(t->arena + t->arena_size, bytes, n);
    t->arena_size += n;
    return BPE_OK;
}

static void free_table(table *t)
{
    free(t->slots);
    free(t->arena);
    memset(t, 0, sizeof *t);
}

static int new_table(table *t, size_t capacity, const uint64_t seed[2])
{
    memcpy(t->seed, seed, sizeof t->seed);
    return resize(t, capacity);
}

/* Make the key of a word of up to INLINE_MAX bytes, from 16 bytes that begin with it. */
static inline void short_key(const uint8_t *word, size_t length, uint64_t key[2])
{
    static const uint8_t keep[32] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    const uint8_t *mask = keep + 16 - length;
    key[0] = load8(word) & load8(mask);
    key[1] = (load8(word + 8) & load8(mask + 8)) | little((uint64_t)length << 56);
}

/* Make the key of a longer word. If two words have the same key, find_word gives one of them the next key. */
static void long_key(const table *t, const uint8_t *word, size_t length, uint64_t key[2])
{
    const uint8_t *p = word;
    key[0] = 0;
    key[1] = little((uint64_t)LONG_WORD << 56 | length);
    for (size_t left = length; left; left -= left < 16 ? left : 16, p += 16) {
        p = left < 16 ? word + length - 16 : p; /* the last 16 bytes, some of them once more */
        key[0] = fold(key[0] ^ load8(p) ^ t->seed[0], load8(p + 8) ^ t->seed[1]);
    }
}

/* Find the slot of a word with this key, or the empty slot for it. */
static slot *find_word(const table *t, uint64_t key[2], const uint8_t *word, size_t length)
{
    for (;; key[0]++) {
        slot *s = find(t, key[0], key[1]);
        if (length <= INLINE_MAX || !s->key[1] || !memcmp(t->arena + s->is.word.where, word, length))
            return s;
    }
}

/* Get the bytes and the length of the word in a slot; the length is 0 if the slot is empty. */
static const uint8_t *word_of(const table *t, const slot *s, size_t *length)
{
    const uint8_t *bytes = (const uint8_t *)s->key;
    *length = bytes[15] == LONG_WORD ? (size_t)(little(s->key[1]) & bits_below(56)) : bytes[15];
    return bytes[15] == LONG_WORD ? t->arena + s->is.word.where : bytes;
}

/* ---- 1. words: windows of text ----------------------------------------------------------------------------------- */

/* Find the bytes of the window at p that are first to first + n - 1 with some bits set; all are on one side of 128. */
typedef uint64_t (*range_finder)(const uint8_t *p, unsigned with, unsigned first, unsigned n);

#if defined(NEON)
ALWAYS_INLINE uint64_t in_range_baseline(const uint8_t *p, unsigned with, unsigned first, unsigned n)
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
#else
ALWAYS_INLINE uint64_t in_range_baseline(const uint8_t *p, unsigned with, unsigned first, unsigned n)
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

#if defined(AVX2)
ALWAYS_INLINE AVX2 uint64_t in_range_avx2(const uint8_t *p, unsigned with, unsigned first, unsigned n)
{
    const __m256i set = _mm256_set1_epi8((char)with), shift = _mm256_set1_epi8((char)(first - 128));
    const __m256i limit = _mm256_set1_epi8((char)(n - 128)); /* comparisons are signed, so the range moves to -128 */
    uint64_t bits = 0;
    for (unsigned i = 0; i < WINDOW; i += 32) {
        __m256i v = _mm256_or_si256(_mm256_loadu_si256((const void *)(p + i)), set);
        bits |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(limit, _mm256_sub_epi8(v, shift))) << i;
    }
    return bits;
}
#endif

#if defined(AVX512)
ALWAYS_INLINE AVX512 uint64_t in_range_avx512(const uint8_t *p, unsigned with, unsigned first, unsigned n)
{
    const __m512i v = _mm512_or_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)with));
    return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8((char)first)), _mm512_set1_epi8((char)n));
}
#endif

/* ---- 1. words: special tokens ------------------------------------------------------------------------------------ */

/*
 * An automaton that reads text backward (Aho and Corasick 1975, with reversed tokens). A node is the end of a token;
 * the current one is the longest with which the text at the current byte begins. So one step per byte finds the longest
 * token that begins at each place, however the tokens overlap themselves and each other.
 */
typedef struct {
    uint32_t fail;  /* the longest other node with which this one begins */
    uint32_t token; /* 1 + the index of the longest token with which it begins, or 0 */
} node;

typedef struct {
    uint32_t length, node; /* node: of its last bytes, as far as they were added */
} special_token;

typedef struct { /* how text is cut into words */
    int pattern;
    special_token *specials; /* the tokens */
    size_t n, longest;
    table children; /* the key is node << 8 | byte, and 1; word.where is the node with this byte before the others */
    node *nodes;    /* node 0 is the empty string */
    uint32_t n_nodes;
    unsigned least[2], most[2];    /* of the first and second bytes of all tokens */
    uint64_t starts[1 << 16 >> 6]; /* a bit for each two bytes with which a token starts */
} rules;

static inline unsigned first_two(const uint8_t *token) { return (unsigned)token[0] << 8 | token[1]; }

/* the node after one more byte */
static inline uint32_t next_node(const rules *r, uint32_t from, unsigned byte)
{
    for (;; from = r->nodes[from].fail) {
        const slot *child = find(&r->children, (uint64_t)from << 8 | byte, 1);
        if (child->key[1] || !from)
            return (uint32_t)child->is.word.where; /* 0 in an empty slot */
    }
}

/* Add a byte before a node, unless that was done. All shorter nodes are there already. */
static int add_node(rules *r, uint32_t *at, unsigned byte)
{
    const uint64_t key = (uint64_t)*at << 8 | byte;
    slot *child = find(&r->children, key, 1);
    if (!child->key[1]) {
        const uint32_t fail = *at ? next_node(r, r->nodes[*at].fail, byte) : 0;
        if (!(child = add_key(&r->children, key, 1)))
            return BPE_NO_MEMORY;
        r->nodes[r->n_nodes] = (node){fail, r->nodes[fail].token};
        child->is.word.where = r->n_nodes++;
    }
    *at = (uint32_t)child->is.word.where;
    return BPE_OK;
}

static int new_rules(rules *r, const uint8_t *bytes, const size_t *lengths, size_t n, int pattern,
                     const uint64_t seed[2])
{
    size_t start = 0, end = 0;
    if (pattern < 0 || pattern > BPE_QWEN2)
        return BPE_BAD_ARGUMENT;
    r->pattern = pattern;
    r->n = n;
    if (!(r->specials = allocate(n, sizeof *r->specials)))
        return BPE_NO_MEMORY;
    for (size_t i = 0; i < n; start += lengths[i++]) {
        unsigned two;
        if (lengths[i] < 2)
            return BPE_BAD_ARGUMENT;
        if (lengths[i] >= UINT32_MAX - start)
            return BPE_OVERFLOW;
        two = first_two(bytes + start);
        r->specials[i].length = (uint32_t)lengths[i];
        r->longest = lengths[i] > r->longest ? lengths[i] : r->longest;
        r->starts[two >> 6] |= (uint64_t)1 << (two & 63);
        for (unsigned k = 0; k < 2; k++) {
            const unsigned byte = bytes[start + k];
            r->least[k] = i && r->least[k] < byte ? r->least[k] : byte;
            r->most[k] = r->most[k] > byte ? r->most[k] : byte;
        }
    }
    if (!(r->nodes = allocate(start + 1, sizeof *r->nodes)))
        return BPE_NO_MEMORY;
    r->n_nodes = 1;
    TRY(new_table(&r->children, 64, seed));
    for (size_t depth = 1; depth <= r->longest; depth++, end = 0)
        for (special_token *s = r->specials; s < r->specials + n; s++) {
            end += s->length;
            if (depth <= s->length)
                TRY(add_node(r, &s->node, bytes[end - depth]));
            if (depth == s->length)
                r->nodes[s->node].token = (uint32_t)(s - r->specials) + 1;
        }
    return BPE_OK;
}

static void free_rules(rules *r)
{
    free_table(&r->children);
    free(r->nodes);
    free(r->specials);
}

/* where special tokens begin in from..to - 1 */
typedef struct {
    uint32_t *token; /* at each of these places: 1 + the index of the longest token that begins there, or 0 */
    size_t room;
    const uint8_t *from, *to;
} finder;

/* search the places from text on for which there is room */
static void search(finder *f, const rules *r, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *p;
    uint32_t at = 0;
    f->from = text;
    f->to = (size_t)(end - text) < f->room ? end : text + f->room;
    for (p = (size_t)(end - f->to) < r->longest ? end : f->to + r->longest; p-- > text;) {
        at = next_node(r, at, *p);
        if (p < f->to)
            f->token[p - text] = r->nodes[at].token;
    }
}

/* Find the first place from text on at which the first two bytes of a special token are, or end. */
ALWAYS_INLINE const uint8_t *find_start(range_finder in_range, const rules *r, const uint8_t *text, const uint8_t *end)
{
    const unsigned least = r->least[0], next = r->least[1], most = r->most[0], next_most = r->most[1];
    const int ranges = (least ^ most) < 128 && (next ^ next_most) < 128; /* as in_range needs them */
    while (end - text > 1) {
        const size_t left = (size_t)(end - text) - 1;
        const unsigned n = left < WINDOW ? (unsigned)left : WINDOW;
        uint64_t places = bits_below(n);
        if (ranges && left > WINDOW && (places = in_range(text, 0, least, most - least + 1)))
            places &= in_range(text + 1, 0, next, next_most - next + 1);
        for (; places; places &= places - 1) {
            const uint8_t *place = text + lowest_bit(places);
            if (r->starts[first_two(place) >> 6] >> (first_two(place) & 63) & 1)
                return place;
        }
        text += n;
    }
    return end;
}

/*
 * Find the first special token at or after text, the longest if several begin there. Returns 1 + its index, and its
 * place in *at; or 0 and *at = end if no token follows.
 */
ALWAYS_INLINE size_t find_special(range_finder in_range, finder *f, const rules *r, const uint8_t *text,
                                  const uint8_t *end, const uint8_t **at)
{
    for (; r->n && text < end; text++) {
        if (text >= f->to) {
            text = find_start(in_range, r, text, end);
            if (text == end)
                break;
            search(f, r, text, end);
        }
        *at = text;
        if (f->token[text - f->from])
            return f->token[text - f->from];
    }
    *at = end;
    return 0;
}

/* ---- 1. words: counts -------------------------------------------------------------------------------------------- */

struct bpe_words {
    table table; /* without slots when the words are used up */
    rules rules;
};

static int add_count(uint64_t *count, uint64_t more)
{
    if (more > COUNT_MAX - *count)
        return BPE_OVERFLOW;
    *count += more;
    return BPE_OK;
}

/* Count a word, given its key. */
static NOINLINE int put_word(table *t, uint64_t key[2], const uint8_t *word, size_t length, uint64_t count)
{
    slot *s = find_word(t, key, word, length);
    if (s->key[1])
        return add_count(&s->is.word.count, count);
    if (length > UINT32_MAX)
        return BPE_OVERFLOW;
    if ((length > INLINE_MAX && keep_bytes(t, word, length) != BPE_OK) || !(s = add_key(t, key[0], key[1])))
        return BPE_NO_MEMORY;
    s->is.word.count = count;
    s->is.word.where = t->arena_size - length;
    return BPE_OK;
}

/* Add a word that was counted elsewhere. */
static int add_word(table *t, const uint8_t *word, size_t length, uint64_t count)
{
    uint64_t key[2] = {0, 0};
    if (length > INLINE_MAX)
        long_key(t, word, length, key);
    else {
        memcpy(key, word, length);
        ((uint8_t *)key)[15] = (uint8_t)length;
    }
    return put_word(t, key, word, length, count);
}

/* After an error the counts are incomplete: drop them all, so that the next call returns BPE_USED_UP. */
static int finish_words(bpe_words *w, int status)
{
    if (status != BPE_OK)
        free_table(&w->table);
    return status;
}

void bpe_words_free(bpe_words *w)
{
    if (!w)
        return;
    free_table(&w->table);
    free_rules(&w->rules);
    free(w);
}

int bpe_words_new(const uint8_t *special_bytes, const size_t *lengths, size_t n, int pattern, const uint64_t seed[2],
                  bpe_words **words)
{
    bpe_words *w = *words = calloc(1, sizeof *w);
    if (!w)
        return BPE_NO_MEMORY;
    TRY(new_rules(&w->rules, special_bytes, lengths, n, pattern, seed));
    return new_table(&w->table, FIRST_SLOTS, seed);
}

int bpe_words_put(bpe_words *w, const uint8_t *bytes, const uint32_t *lengths, const uint64_t *counts, size_t n)
{
    int status = w->table.slots ? BPE_OK : BPE_USED_UP;
    for (size_t i = 0; i < n && status == BPE_OK; bytes += lengths[i++])
        if (lengths[i] && counts[i])
            status = add_word(&w->table, bytes, lengths[i], counts[i]);
    return finish_words(w, status);
}

int bpe_words_add(bpe_words *w, const bpe_words *other)
{
    const table *t = &other->table;
    const size_t before = w->table.used;
    size_t length;
    int status = BPE_OK;
    if (!w->table.slots || !t->slots)
        return BPE_USED_UP;
    /* in the order of hashes, words pile up in a table that is too small: it grows as soon as that can be foreseen */
    if (w->table.capacity < t->capacity)
        status = resize(&w->table, t->capacity);
    for (size_t i = 0; i < t->capacity && status == BPE_OK; i++) {
        const uint8_t *word = word_of(t, t->slots + i, &length);
        if (length)
            status = add_word(&w->table, word, length, t->slots[i].is.word.count);
        if (status == BPE_OK && i % FIRST_SLOTS == FIRST_SLOTS - 1 &&
            is_too_small(&w->table, before + (uint64_t)(w->table.used - before) * t->capacity / (i + 1)))
            status = resize(&w->table, 2 * w->table.capacity);
    }
    return finish_words(w, status);
}

void bpe_words_totals(const bpe_words *w, bpe_totals *totals)
{
    const table *t = &w->table;
    memset(totals, 0, sizeof *totals);
    totals->words = t->used;
    for (size_t i = 0; i < t->capacity; i++) {
        const uint64_t count = t->slots[i].is.word.count;
        size_t length;
        (void)word_of(t, t->slots + i, &length); /* 0 in an empty slot */
        totals->bytes += length;
        totals->pretokens += count & UINT32_MAX;
        totals->pretokens_high += count >> 32;
        totals->bytes_in_words += (count & UINT32_MAX) * length;
        totals->bytes_in_words_high += (count >> 32) * length;
    }
}

typedef struct {
    uint64_t count;
    const uint8_t *word;
    size_t length;
} listed_word;

static int by_count_and_bytes(const void *x, const void *y)
{
    const listed_word *a = x, *b = y;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return compare_bytes(a->word, a->length, b->word, b->length);
}

int bpe_words_get(const bpe_words *w, uint8_t *bytes, uint32_t *lengths, uint64_t *counts)
{
    const table *t = &w->table;
    listed_word *list = t->slots ? allocate(t->used, sizeof *list) : NULL, *entry = list;
    if (!list)
        return t->slots ? BPE_NO_MEMORY : BPE_USED_UP;
    for (size_t i = 0; i < t->capacity; i++) {
        size_t length;
        const uint8_t *word = word_of(t, t->slots + i, &length);
        if (length)
            *entry++ = (listed_word){t->slots[i].is.word.count, word, length};
    }
    qsort(list, t->used, sizeof *list, by_count_and_bytes);
    for (entry = list; entry < list + t->used; entry++) {
        memcpy(bytes, entry->word, entry->length);
        bytes += entry->length;
        *lengths++ = (uint32_t)entry->length;
        *counts++ = entry->count;
    }
    free(list);
    return BPE_OK;
}

/* ---- 1. words: scanning text ------------------------------------------------------------------------------------- */

/*
 * To add a pattern, which bpe.py has as an expression:
 *   1. add its name to bpe_pattern and to NAMES in build_ffi.py, and a class that only it uses to CLASSES there;
 *   2. say in walk_word what its words are, character by character: that is a complete scanner;
 *   3. let find_starts return 0 starts for it, so that walk_word reads all words, and test that;
 *   4. add the masks that it needs to ascii_masks and wide_masks, and a function like gpt2_starts that finds all starts
 *      among the first *n bytes, whatever text follows; a smaller *n leaves the rest to walk_word;
 *   5. add its traps, and an alphabet with all of its classes, to the tests, which compare with regex.
 * cl100k, llama3 and qwen2 differ only in whitespace at the end of the text, and in the digits of a number.
 */

/* the classes in bpe_class_blocks, and sets of them; NONE is the end of the text */
enum { OTHER, UPPER, LOWER, BOTH, MARK, NUMBER, SPACE, LINE_END, NONE };
#define SET(class) (1u << (class))
#define LETTERS (SET(UPPER) | SET(LOWER) | SET(BOTH))
#define SPACES (SET(SPACE) | SET(LINE_END))

typedef struct { /* one bit per byte; plain_space is U+0020, tail any byte of a character but its first */
    uint64_t of[NONE]; /* by class, but not OTHER: all bytes of its characters */
    uint64_t high, plain_space, quote, slash, tail;
} masks;

ALWAYS_INLINE void ascii_masks(range_finder in_range, int pattern, const uint8_t *w, masks *m)
{
    m->high = in_range(w, 0, 0x80, 128);
    m->of[LOWER] = in_range(w, 0x20, 'a', 26); /* in both cases */
    m->of[NUMBER] = in_range(w, 0, '0', 10);
    m->plain_space = in_range(w, 0, ' ', 1);
    m->of[SPACE] = m->plain_space | in_range(w, 0, '\t', 5);
    m->quote = in_range(w, 0, '\'', 1);
    if (pattern != BPE_GPT2) /* else they are whitespace like any other */
        m->of[LINE_END] = in_range(w, 0, '\n', 1) | in_range(w, 0, '\r', 1);
    if (pattern == BPE_O200K) {
        m->of[UPPER] = in_range(w, 0, 'A', 26);
        m->of[LOWER] &= ~m->of[UPPER];
        m->slash = in_range(w, 0, '/', 1);
    }
}

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

static inline unsigned class_of(uint32_t character)
{
    return bpe_class_blocks[bpe_class_index[character >> 8]][character & 0xFF];
}

/*
 * Add characters beyond ASCII to the masks: all bytes of a character get its class. Returns the number of known bytes:
 * n, or fewer if an incomplete character, bytes that are not UTF-8, or a character that is for walk_word follow them.
 */
ALWAYS_INLINE unsigned wide_masks(range_finder in_range, int pattern, const uint8_t *window, unsigned n, size_t left,
                                  masks *m)
{
    const uint64_t tail = m->tail = in_range(window, 0, 0x80, 0x40) & bits_below(n);
    uint64_t hard, high = m->high & bits_below(n);
    uint64_t lead = bpe_cjk_are_letters ? in_range(window, 0, 0xE4, 6) : 0;
    if (lead) { /* U+4E00..U+9FFF: E5 to E9, or E4 and then B8 or more; two more bytes follow */
        lead &= (in_range(window, 0, 0xE5, 5) | in_range(window, 0, 0xB8, 8) >> 1) & tail >> 1 & tail >> 2;
        m->of[BOTH] = lead | lead << 1 | lead << 2;
        high &= ~m->of[BOTH];
    }
    while (high) {
        uint32_t character;
        uint64_t bits;
        unsigned i = lowest_bit(high);
        unsigned length = decode(window + i, window + (left < READABLE ? left : READABLE), &character);
        if (!length || i + length > n) {
            n = i;
            break;
        }
        bits = bits_below(length) << i;
        high &= ~bits;
        m->of[class_of(character)] |= bits;
    }
    hard = m->high & bits_below(n) & (m->of[SPACE] | (pattern == BPE_GPT2 ? 0 : m->of[NUMBER]));
    return hard ? lowest_bit(hard) : n;
}

/* the length of 's 't 'm 'd 'll 've 're at a quote, or 0; `left` is how many bytes are left */
static inline unsigned contraction(int pattern, const uint8_t *quote, size_t left)
{
    unsigned lower = pattern == BPE_GPT2 ? 0 : 0x20, a = left > 1 ? quote[1] | lower : 0, b = left > 2 ? quote[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((a == 'l' && (b | lower) == 'l') || ((a == 'v' || a == 'r') && (b | lower) == 'e'))
        return 3;
    return lower && b == 0xBF && quote[1] == 0xC5 ? 3 : 0; /* U+017F, an s where case is ignored */
}

/* Correct the starts at contractions, from left to right; quotes are those that can begin one. */
ALWAYS_INLINE uint64_t cut_contractions(int pattern, const uint8_t *window, size_t left, uint64_t quotes,
                                        uint64_t starts)
{
    for (unsigned end = 0; quotes; quotes &= quotes - 1) {
        unsigned i = lowest_bit(quotes), length = contraction(pattern, window + i, left - i);
        if (!LIKELY(length) || (pattern == BPE_O200K && i == end)) /* a word begins after a contraction */
            continue;
        end = i + length;
        starts &= ~(bits_below(length) << i);
        if (pattern != BPE_O200K) /* there it goes with the letters before it */
            starts |= (uint64_t)1 << i;
        if (end < WINDOW)
            starts |= (uint64_t)1 << end;
    }
    return starts;
}

/* Find the bits at which words begin for gpt2. */
ALWAYS_INLINE uint64_t gpt2_starts(const uint8_t *window, const masks *m, unsigned n, size_t left)
{
    uint64_t known = bits_below(n), letter = m->of[UPPER] | m->of[LOWER] | m->of[BOTH], number = m->of[NUMBER];
    uint64_t space = m->of[SPACE] & known, solid = ~space & known, other = solid & ~(letter | number);
    uint64_t same = (letter & letter << 1) | (number & number << 1) | (other & other << 1);
    uint64_t starts = (solid & ~same & ~(m->plain_space << 1)) | (space & ~(space << 1 & ~(solid >> 1))) | 1;
    return cut_contractions(BPE_GPT2, window, left, m->quote & starts & known, starts) & known;
}

/* every third byte of each run of numbers, which are ASCII */
ALWAYS_INLINE uint64_t groups_of_three(uint64_t number)
{
    uint64_t groups = number & ~(number << 1);
    for (uint64_t at = groups, run = number & number << 1 & number << 2 & number << 3; at; groups |= at)
        at = at << 3 & run;
    return groups;
}

/* Find the bits at which runs of whitespace begin, and at which they are cut, for the other patterns. */
ALWAYS_INLINE uint64_t space_starts(uint64_t space, uint64_t line_end, uint64_t solid)
{
    uint64_t plain = space & ~line_end, behind_line = plain & line_end << 1, x;
    uint64_t starts = (space & ~(space << 1)) | (plain & solid >> 1) | behind_line;
    for (x = (plain + behind_line) & line_end; x; x &= x - 1) /* a later newline follows in the same run */
        starts &= ~((uint64_t)1 << highest_bit(behind_line & bits_below(lowest_bit(x))));
    return starts;
}

/*
 * Find the bits at which words begin for the other patterns; *n is reduced to the bytes with known starts. The bits
 * of each mask for cl100k, from left to right:
 *     text         !  \n /  .  a  b  '  s  .  .  x       (a dot is a space)
 *     letter       0  0  0  0  1  1  0  1  0  0  1
 *     space        0  0  0  1  0  0  0  0  1  1  0       without the newline, which is in `chain`
 *     other        1  0  1  0  0  0  1  0  0  0  0
 *     chain        0  1  0  0  0  0  0  0  0  0  0       belongs to the word before it; in o200k, the slash does too
 *     starts       1  0  1  1  0  0  1  0  1  1  0       words: "!\n", "/", " ab", "'s", " ", " x"
 */
ALWAYS_INLINE uint64_t modern_starts(int pattern, const uint8_t *window, const masks *m, unsigned *n, size_t left)
{
    const int o200k = pattern == BPE_O200K;
    const uint64_t upper = m->of[UPPER], both = m->of[BOTH], line_end = m->of[LINE_END], mark = o200k ? m->of[MARK] : 0;
    uint64_t letter = upper | m->of[LOWER] | both | mark, number = m->of[NUMBER], space = m->of[SPACE] | line_end;
    uint64_t other = ~(letter | number | space), known = bits_below(*n), hard;
    uint64_t tail, behind, chain, lone, quotes, starts;
    hard = o200k ? ((mark & other << 1) | (upper & (both | mark) << 1)) & known : 0;
    if (hard) { /* for walk_word */
        *n = lowest_bit(hard);
        known = bits_below(*n);
    }
    letter &= known;
    number &= known;
    tail = m->tail & known;
    /* newlines (and slashes after them) that belong to a word of other characters before them */
    behind = (o200k ? line_end | m->slash : line_end) & known;
    chain = behind & line_end & other << 1;
    chain |= ((behind + chain) ^ behind) & behind;
    other &= known & ~chain;
    space &= known & ~chain;

    starts = other & ~(other << 1) & ~(m->plain_space << 1);
    quotes = m->quote & (o200k ? letter << 1 : starts) & known;
    lone = starts; /* a single other character joins the letters after it, as whitespace does */
    for (unsigned k = 0; tail && k < 3; k++)
        lone |= lone << 1 & tail;
    starts |= letter & ~((letter | (space & ~line_end) | lone) << 1);
    if (o200k)
        starts |= upper & m->of[LOWER] << 1 & known;
    starts |= space_starts(space, line_end & space, letter | number | other);
    starts |= (pattern == BPE_QWEN2 ? number : groups_of_three(number)) | 1;
    starts = cut_contractions(pattern, window, left, quotes, starts);
    if (space >> (*n - 1) & 1 && (left > *n || pattern == BPE_CL100K)) { /* unknown; at the end, cl100k cuts nothing */
        uint64_t before = ~space & known;
        starts &= bits_below(before ? highest_bit(before) + 2 : 1);
    }
    return starts & known;
}

/* the class of the character at p; NONE at the end, and for bytes that are not UTF-8 */
static inline unsigned class_at(const uint8_t *p, const uint8_t *end, unsigned *length)
{
    uint32_t character;
    *length = p < end ? decode(p, end, &character) : 0;
    return SET(*length ? class_of(character) : NONE);
}

/* Skip characters of some classes. */
static const uint8_t *skip(const uint8_t *p, const uint8_t *end, unsigned set)
{
    unsigned length;
    while (class_at(p, end, &length) & set)
        p += length;
    return p;
}

/* Skip the letters of a word, and in o200k the contraction that belongs to them. */
static const uint8_t *skip_letters(int pattern, const uint8_t *p, const uint8_t *end)
{
    unsigned class, length, both = SET(BOTH) | SET(MARK);
    const uint8_t *behind_both = NULL;
    if (pattern != BPE_O200K)
        return skip(p, end, LETTERS);
    for (; (class = class_at(p, end, &length)) & (SET(UPPER) | both); p += length)
        if (class & both)
            behind_both = p + length;
    if (class == SET(LOWER))
        p = skip(p, end, SET(LOWER) | both);
    else if (behind_both) /* without lowercase after it, the word ends with the last letter that can be lowercase */
        p = behind_both;
    return p < end && *p == '\'' ? p + contraction(pattern, p, (size_t)(end - p)) : p;
}

/* Skip the whitespace that a word begins with and that does not belong to the next one. */
static const uint8_t *skip_spaces(int pattern, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *p = text, *last = text, *behind_line = NULL;
    for (unsigned class, length; (class = class_at(p, end, &length)) & SPACES; p += length) {
        last = p;
        if (class == SET(LINE_END))
            behind_line = p + length;
    }
    if (pattern != BPE_GPT2 && behind_line && !(pattern == BPE_CL100K && p == end))
        return behind_line;
    return p < end && last > text ? last : p;
}

/*
 * Read the word at text character by character, for cases that the masks can't decide. Returns its length, which is 0
 * if text is not UTF-8.
 */
static size_t walk_word(int pattern, const uint8_t *text, const uint8_t *end)
{
    unsigned letters = pattern == BPE_O200K ? LETTERS | SET(MARK) : LETTERS, others = SET(OTHER) | SET(MARK);
    unsigned length, unused, first = class_at(text, end, &length), next = class_at(text + length, end, &unused);
    unsigned quoted = pattern == BPE_O200K || *text != '\'' ? 0 : contraction(pattern, text, (size_t)(end - text));
    const uint8_t *p = text + length;
    int gpt2 = pattern == BPE_GPT2, plain_space = *text == ' ';
    int goes_along = gpt2 ? plain_space : !(first & (SET(NUMBER) | SET(LINE_END))); /* with letters that follow */
    if (quoted)
        p = text + quoted;
    else if (first & letters)
        p = skip_letters(pattern, text, end);
    else if (next & letters && goes_along)
        p = skip_letters(pattern, p, end);
    else if (gpt2 && (first == SET(NUMBER) || (plain_space && next == SET(NUMBER))))
        p = skip(p, end, SET(NUMBER));
    else if (first == SET(NUMBER))
        for (unsigned k = pattern == BPE_QWEN2 ? 2 : 0; k < 2 && class_at(p, end, &length) == SET(NUMBER); k++)
            p += length;
    else if (first & others || (plain_space && next & others)) {
        p = skip(p, end, others);
        while (!gpt2 && p < end && (*p == '\r' || *p == '\n' || (pattern == BPE_O200K && *p == '/')))
            p++;
    } else
        p = skip_spaces(pattern, text, end);
    return (size_t)(p - text);
}

/* the words of a window: all starts among its first `known` bytes */
typedef struct {
    uint64_t starts;
    unsigned known;
} cut;

/* Find all starts of words except the first in a window that begins with a word; `left` bytes of text remain. */
ALWAYS_INLINE cut find_starts(range_finder in_range, int pattern, const uint8_t *window, size_t left)
{
    masks m = {0};
    cut c = {0, left < WINDOW ? (unsigned)left : WINDOW};
    ascii_masks(in_range, pattern, window, &m);
    if (m.high & bits_below(c.known))
        c.known = wide_masks(in_range, pattern, window, c.known, left, &m);
    if (!c.known)
        return c;
    c.starts = pattern == BPE_GPT2    ? gpt2_starts(window, &m, c.known, left)
               : pattern == BPE_O200K ? modern_starts(BPE_O200K, window, &m, &c.known, left)
                                      : modern_starts(pattern, window, &m, &c.known, left);
    c.starts &= ~(uint64_t)1;
    return c;
}

/*
 * A batch of words. When a word is added, its key is made, and its slot is prefetched. When the batch is full, most
 * slots have arrived, and a sink looks all of them up. A sink that returns an error ends the scan.
 */
typedef struct {
    uint64_t key[2];
    const uint8_t *word;
    size_t length, home; /* home: the index of its slot, if no other has it */
} pending;

/* `special` is 1 + the index of the special token that follows the words, or 0. */
typedef int (*batch_sink)(void *state, pending *words, size_t n, size_t special);

typedef struct {
    pending words[BATCH + WINDOW]; /* when a batch is full, the words of the last window still have room */
    size_t n;
    const uint8_t *text, *limit; /* the next word; bytes up to limit can be read */
    const rules *rules;
    const table *table;
    batch_sink sink;
    void *state;
} batch;

static int end_batch(batch *b, size_t special)
{
    const size_t n = b->n;
    b->n = 0;
    return b->sink(b->state, b->words, n, special);
}

/* Make the key of a word, and prefetch its slot. 16 bytes can be read. */
ALWAYS_INLINE void prepare(pending *p, const table *t, const uint8_t *word, size_t length)
{
    if (LIKELY(length <= INLINE_MAX))
        short_key(word, length, p->key);
    else
        long_key(t, word, length, p->key);
    p->word = word;
    p->length = length;
    p->home = home_of(t, p->key[0], p->key[1]);
    PREFETCH(t->slots + p->home);
}

/* Add the words up to a special token or the end. After BPE_BAD_UTF8, b->text is the first byte that is not UTF-8. */
ALWAYS_INLINE int scan_words(range_finder in_range, batch *b, const uint8_t *end)
{
    const int pattern = b->rules->pattern;
    const uint8_t *const limit = b->limit;
    uint8_t copy[READABLE];
    while (b->text < end) {
        const size_t left = (size_t)(end - b->text);
        const uint8_t *text = b->text, *window = text;
        const table t = *b->table; /* a copy stays in registers, because no key that is stored can change it */
        pending *next = b->words + b->n;
        size_t at = 0;
        cut c;
        if ((size_t)(limit - text) < READABLE) {
            memset(copy, 0, sizeof copy);
            window = memcpy(copy, text, left < READABLE ? left : READABLE);
        }
        c = find_starts(in_range, pattern, window, left);
        for (; c.starts; c.starts &= c.starts - 1) {
            const unsigned to = lowest_bit(c.starts);
            prepare(next++, &t, window + at, to - at);
            at = to;
        }
        if (!LIKELY(at && left > c.known)) { /* a word that is longer, or the last one */
            const size_t length = left == c.known ? left - at : walk_word(pattern, text + at, end);
            if (!length)
                return BPE_BAD_UTF8;
            prepare(next++, &t, (length > INLINE_MAX ? text : window) + at, length);
            at += length;
        }
        b->text += at;
        b->n = (size_t)(next - b->words);
        if (b->n >= BATCH || window == copy)
            TRY(end_batch(b, 0));
    }
    return BPE_OK;
}

ALWAYS_INLINE int scan_with(range_finder in_range, batch *b, const uint8_t *end)
{
    const rules *r = b->rules;
    const uint8_t *piece_end;
    finder f = {NULL, r->longest > WINDOW ? r->longest : WINDOW, b->text, b->text};
    int status = BPE_OK;
    if (r->n && !(f.token = allocate(f.room, sizeof *f.token)))
        return BPE_NO_MEMORY;
    while (b->text < end && status == BPE_OK) {
        const size_t found = find_special(in_range, &f, r, b->text, end, &piece_end);
        status = scan_words(in_range, b, piece_end);
        if (status == BPE_OK)
            status = end_batch(b, found);
        if (status == BPE_OK && found)
            b->text += r->specials[found - 1].length;
    }
    free(f.token);
    return status;
}

static NOINLINE int scan_baseline(batch *b, const uint8_t *end) { return scan_with(in_range_baseline, b, end); }

#if defined(AVX2)
static NOINLINE AVX2 int scan_avx2(batch *b, const uint8_t *end) { return scan_with(in_range_avx2, b, end); }
#endif

#if defined(AVX512)
static NOINLINE AVX512 int scan_avx512(batch *b, const uint8_t *end) { return scan_with(in_range_avx512, b, end); }
#endif

/* Give the words of a batch's text and its special tokens, up to end, to its sink. */
static int scan_text(batch *b, const uint8_t *end)
{
#if defined(AVX512)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("bmi2"))
        return scan_avx512(b, end);
#endif
#if defined(AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return scan_avx2(b, end);
#endif
    return scan_baseline(b, end);
}

/* the sink that counts */
static int count_batch(void *state, pending *words, size_t n, size_t special)
{
    table *t = state;
    (void)special;
    for (pending *p = words; p < words + n; p++) {
        slot *s = t->slots + p->home;
        if (LIKELY(s->key[0] == p->key[0] && s->key[1] == p->key[1] && p->length <= INLINE_MAX))
            TRY(add_count(&s->is.word.count, 1));
        else
            TRY(put_word(t, p->key, p->word, p->length, 1));
    }
    return BPE_OK;
}

/* Give a table the size that text of this length usually needs, so that it grows less often. */
static int fit_table(table *t, size_t length, size_t most)
{
    size_t capacity = t->capacity;
    while (capacity < most && capacity < length / BYTES_PER_SLOT)
        capacity *= 2;
    return capacity > t->capacity ? resize(t, capacity) : BPE_OK;
}

int bpe_words_scan(bpe_words *w, const uint8_t *text, size_t length, size_t *bad_offset)
{
    batch b = {.rules = &w->rules, .table = &w->table, .sink = count_batch, .state = &w->table,
               .text = text, .limit = text + length};
    int status = w->table.slots ? fit_table(&w->table, length, FITTED_SLOTS) : BPE_USED_UP;
    if (status == BPE_OK)
        status = scan_text(&b, b.limit);
    if (status == BPE_BAD_UTF8)
        *bad_offset = (size_t)(b.text - text);
    return finish_words(w, status);
}

/* ---- 2. learning: the structures --------------------------------------------------------------------------------- */

enum { NO_TOKEN = 0, FIRST_ID = 1, ROWS = FIRST_ID + 256 }; /* inside the learner, each id is the caller's + 1 */
enum { BLOCK = 128 };                                       /* slots of the array that share a count */
enum { WORK_PER_CALL = 1 << 22 };                           /* places; about 0.1 s */
enum { LEFT, RIGHT, N_PLACES, PLACES };                     /* the header of a pair's list; its places follow */

typedef struct { uint64_t key, count; } heap_entry;

typedef struct { /* a new pair */
    uint64_t count;
    size_t list; /* the index in `lists` of its next place; 0 if the pair is not in the table */
    uint32_t n;  /* number of places */
} pair_sum;

typedef struct {
    uint32_t length;
    size_t where;   /* offset of the bytes */
    uint64_t start; /* the first 8 bytes as a number, padded with zeros: decides nearly all comparisons */
    size_t places;  /* where its next place goes when pairs are indexed again; 0 else */
    pair_sum beside[2]; /* new pairs with this token on the left and on the right; all zero between merges */
} token;

struct bpe_learner {
    int status;      /* any other than BPE_OK is final */
    uint64_t wanted; /* the most merges that may follow */
    uint32_t *seq;   /* the array of all words */
    size_t n_slots;
    uint64_t *counts;     /* per block */
    pair_sum *byte_pairs; /* a matrix of ROWS rows; used until the pairs of bytes are in the table */
    token *tokens;
    size_t n_tokens, token_capacity;
    uint8_t *bytes;
    size_t n_bytes, bytes_capacity;
    uint32_t (*met)[2];      /* the ids with an entry in `beside` */
    uint32_t (*replaced)[2]; /* the two neighbors of each replaced pair */
    size_t n_met[2], met_capacity, replaced_capacity;
    table pairs;      /* all pairs that occur at least `threshold` times; the key is the pair, and 1 */
    uint32_t *places; /* of all tokens, sorted by token, while pairs are indexed again */
    uint32_t *lists;  /* for each pair a header, then its places in ascending order */
    size_t n_lists, lists_capacity;
    heap_entry *heap;
    size_t n_heap, heap_capacity;
    size_t most_pairs; /* if the table holds more, the threshold is raised */
    uint64_t level, threshold, floor; /* floor: of the threshold, since rarer pairs are not merged */
    size_t longest;
    int smaller_ids; /* a tie goes to the smaller ids, as in Hugging Face's trainer; else to the greater bytes */
};

static uint64_t pair_key(uint32_t left, uint32_t right) { return (uint64_t)left << 32 | right; }

/* compare two tokens by their bytes: negative, 0 or positive */
static int compare_tokens(const bpe_learner *l, uint32_t a, uint32_t b)
{
    const token *x = l->tokens + a, *y = l->tokens + b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return a == b ? 0 : compare_bytes(l->bytes + x->where, x->length, l->bytes + y->where, y->length);
}

/* the order of merges: the larger count first, then the greater left token, then the greater right token */
static int is_better(const bpe_learner *l, const heap_entry *x, const heap_entry *y)
{
    int order;
    if (x->count != y->count)
        return x->count > y->count;
    if (l->smaller_ids)
        return x->key < y->key;
    order = compare_tokens(l, (uint32_t)(x->key >> 32), (uint32_t)(y->key >> 32));
    return order ? order > 0 : compare_tokens(l, (uint32_t)x->key, (uint32_t)y->key) > 0;
}

/* move the entry at the top down to its place */
static void heap_down(bpe_learner *l)
{
    const heap_entry moving = l->heap[0];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->n_heap; i = child) {
        if (child + 1 < l->n_heap && is_better(l, l->heap + child + 1, l->heap + child))
            child++;
        if (!is_better(l, l->heap + child, &moving))
            break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = moving;
}

/* put an entry into the heap */
static int heap_push(bpe_learner *l, heap_entry entry)
{
    size_t i = l->n_heap;
    TRY(grow(&l->heap, &l->heap_capacity, i + 1, sizeof *l->heap));
    for (l->n_heap++; i && is_better(l, &entry, l->heap + (i - 1) / 2); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = entry;
    return BPE_OK;
}

/* add a token; its bytes are already in place, after all others */
static int add_token(bpe_learner *l, size_t length)
{
    const size_t n = l->n_tokens + 1, where = l->n_bytes;
    uint64_t start = 0;
    if (n >= UINT32_MAX || length > UINT32_MAX)
        return BPE_OVERFLOW;
    TRY(grow(&l->tokens, &l->token_capacity, n, sizeof *l->tokens));
    TRY(grow(&l->met, &l->met_capacity, n, sizeof *l->met));
    for (size_t i = 0; i < 8; i++)
        start = start << 8 | (i < length ? l->bytes[where + i] : 0u);
    l->tokens[l->n_tokens++] = (token){.length = (uint32_t)length, .where = where, .start = start};
    l->n_bytes += length;
    return BPE_OK;
}

/*
 * Make room for more lists, of `needed` numbers. Before the block grows, the lists of pairs that have left the table
 * are removed: such a pair never comes back.
 */
static int make_room_for_lists(bpe_learner *l, size_t needed)
{
    size_t end = 0;
    if (l->n_lists + needed <= l->lists_capacity)
        return BPE_OK;
    for (size_t at = 0, size; at < l->n_lists; at += size) {
        slot *s = find(&l->pairs, pair_key(l->lists[at + LEFT], l->lists[at + RIGHT]), 1);
        size = PLACES + l->lists[at + N_PLACES];
        if (s->key[1]) {
            memmove(l->lists + end, l->lists + at, size * sizeof *l->lists);
            s->is.pair.list = end;
            end += size;
        }
    }
    l->n_lists = end;
    return grow(&l->lists, &l->lists_capacity, end + end / 4 + needed, sizeof *l->lists);
}

/* put a new pair into the table and, if it is frequent, into the heap; begin its list; skip one too rare or too long */
static int add_pair(bpe_learner *l, uint32_t left, uint32_t right, pair_sum *sum)
{
    const heap_entry entry = {pair_key(left, right), sum->count};
    slot *s;
    if (left == NO_TOKEN || right == NO_TOKEN || sum->count < l->threshold ||
        (size_t)l->tokens[left].length + l->tokens[right].length > l->longest)
        return BPE_OK;
    if (!(s = add_key(&l->pairs, entry.key, 1)))
        return BPE_NO_MEMORY;
    s->is.pair.count = sum->count;
    s->is.pair.list = l->n_lists;
    l->lists[l->n_lists + LEFT] = left;
    l->lists[l->n_lists + RIGHT] = right;
    l->lists[l->n_lists + N_PLACES] = sum->n;
    sum->list = l->n_lists + PLACES;
    l->n_lists = sum->list + sum->n;
    return entry.count >= l->level ? heap_push(l, entry) : BPE_OK;
}

/* remove a pair; later entries move up, so that no search ends too early */
static void drop_pair(bpe_learner *l, slot *s)
{
    table *t = &l->pairs;
    const size_t mask = t->capacity - 1;
    size_t hole = (size_t)(s - t->slots);
    for (size_t i = (hole + 1) & mask; t->slots[i].key[1]; i = (i + 1) & mask)
        if (((i - home_of(t, t->slots[i].key[0], 1)) & mask) >= ((i - hole) & mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    t->slots[hole] = (slot){{0, 0}, {{0, 0}}};
    t->used--;
}

/* ---- 2. learning: from words to pairs ---------------------------------------------------------------------------- */

/*
 * Sort slots by descending count: a quicksort with three parts, for larger, equal and smaller counts. The slots are in
 * the order of a hash with a secret seed, so no choice of counts makes this slow.
 */
static void sort_words(slot *s, size_t n)
{
    while (n > 1) {
        const uint64_t middle = s[n / 2].is.word.count;
        size_t larger = 0, smaller = n;
        for (size_t i = 0; i < smaller;) {
            const slot one = s[i];
            if (one.is.word.count > middle) {
                s[i++] = s[larger];
                s[larger++] = one;
            } else if (one.is.word.count < middle) {
                s[i] = s[--smaller];
                s[smaller] = one;
            } else
                i++;
        }
        sort_words(s, larger);
        s += smaller;
        n -= smaller;
    }
}

/*
 * Allocate an array with room for sorted words, and choose the threshold: the count of the last of the l->wanted most
 * frequent words that can become tokens. A merge completes at most one word. So before each of the wanted merges, one
 * of these words still has a pair that can be merged, and the best pair occurs at least as often.
 */
static int new_array(bpe_learner *l, const table *words)
{
    uint64_t left = l->wanted, count = 0;
    size_t n = 2 * BLOCK, length;
    for (const slot *s = words->slots; s < words->slots + words->used; s++) {
        (void)word_of(words, s, &length);
        n += length + 1 + (s->is.word.count == count ? 0 : BLOCK);
        count = s->is.word.count;
        if (length > 1 && length <= l->longest && --left == 0 && count > l->threshold)
            l->threshold = count;
    }
    if (n >= UINT32_MAX)
        return BPE_OVERFLOW;
    l->seq = allocate(n, sizeof *l->seq);
    l->counts = allocate(n / BLOCK, sizeof *l->counts);
    l->byte_pairs = allocate(ROWS * ROWS, sizeof *l->byte_pairs);
    return l->seq && l->counts && l->byte_pairs ? BPE_OK : BPE_NO_MEMORY;
}

/* write sorted words into the array, which has room for them, and sum up their pairs */
static int write_words(bpe_learner *l, const table *words, const uint8_t *id_of_byte)
{
    uint64_t count = 0;
    size_t p = BLOCK, length;
    for (const slot *s = words->slots; s < words->slots + words->used; s++, p += length + 1) {
        const uint8_t *word = word_of(words, s, &length);
        if (s->is.word.count != count) /* words with different counts don't share a block */
            p = (p + BLOCK - 1) / BLOCK * BLOCK;
        count = s->is.word.count;
        for (size_t block = p / BLOCK; block <= (p + length) / BLOCK; block++)
            l->counts[block] = count;
        for (size_t i = 0; i < length; i++)
            l->seq[p + i] = id_of_byte[word[i]] + FIRST_ID;
        for (size_t i = 1; i < length; i++) {
            pair_sum *sum = l->byte_pairs + l->seq[p + i - 1] * ROWS + l->seq[p + i];
            sum->n++;
            TRY(add_count(&sum->count, count));
        }
    }
    l->n_slots = p;
    return BPE_OK;
}

/* add all pairs of bytes to the table, and list their places */
static int index_byte_pairs(bpe_learner *l)
{
    TRY(make_room_for_lists(l, l->n_slots + PLACES * ROWS * ROWS));
    for (uint32_t i = 0; i < ROWS * ROWS; i++)
        TRY(add_pair(l, i / ROWS, i % ROWS, l->byte_pairs + i));
    for (size_t p = BLOCK; p + 1 < l->n_slots; p++) {
        pair_sum *sum = l->byte_pairs + l->seq[p] * ROWS + l->seq[p + 1];
        if (sum->list)
            l->lists[sum->list++] = (uint32_t)p;
    }
    return BPE_OK;
}

/* ---- 2. learning: merges ----------------------------------------------------------------------------------------- */

/* count a neighbor of a replaced pair, on the left (side 0) or on the right (side 1); `lost` is the pair with it */
static inline void meet(bpe_learner *l, unsigned side, uint32_t id, uint64_t lost, uint64_t count)
{
    pair_sum *sum = &l->tokens[id].beside[side];
    if (!sum->n++) {
        l->met[l->n_met[side]++][side] = id;
        PREFETCH(l->pairs.slots + home_of(&l->pairs, lost, 1));
    }
    sum->count += count;
}

static inline void prefetch_place(const bpe_learner *l, uint32_t p, size_t length)
{
    PREFETCH(l->seq + p - 1);
    PREFETCH(l->seq + p + length);
    PREFETCH(l->counts + p / BLOCK);
}

/*
 * Replace the pair (a, b) by c at the n places in a list, remove stale entries from the list, and return its length.
 * *weight is the sum of the counts; the neighbors are added to l->beside and l->replaced.
 */
static size_t replace_pairs(bpe_learner *l, uint32_t *list, size_t n, uint32_t a, uint32_t b, uint32_t c,
                            uint64_t *weight)
{
    uint32_t *seq = l->seq;
    const size_t length_a = l->tokens[a].length, length = l->tokens[c].length;
    size_t made = 0;
    *weight = 0;
    for (size_t i = 0; i < n && i < AHEAD; i++)
        prefetch_place(l, list[i], length);
    for (size_t i = 0; i < n; i++) {
        const uint32_t p = list[i];
        if (i + AHEAD < n)
            prefetch_place(l, list[i + AHEAD], length);
        if (seq[p] == a && seq[p + length_a] == b) {
            const uint64_t count = l->counts[p / BLOCK];
            const uint32_t x = seq[p - 1], y = seq[p + length];
            meet(l, 0, x, pair_key(x, a), count);
            meet(l, 1, y, pair_key(b, y), count);
            l->replaced[made][0] = x;
            l->replaced[made][1] = y;
            seq[p + length_a - 1] = seq[p + length_a] = NO_TOKEN;
            seq[p] = seq[p + length - 1] = c;
            *weight += count;
            list[made++] = p;
        }
    }
    return made;
}

/*
 * For each neighbor x on the left and y on the right, subtract what the pairs (x, a) and (b, y) lost, and add the pairs
 * (x, c) and (c, y). Two new tokens c can be next to each other: when a + a -> c in `aaaa`, the first replacement sees
 * the third a on its right and counts (c, a); the second turns that a into c, sees the first c on its left and counts
 * (c, c). So (c, a) is too large by the count of (c, c).
 */
static int update_pairs(bpe_learner *l, uint32_t a, uint32_t b, uint32_t c)
{
    for (unsigned side = 0; side < 2; side++)
        for (size_t i = 0; i < l->n_met[side]; i++) {
            const uint32_t id = l->met[i][side];
            pair_sum *sum = &l->tokens[id].beside[side];
            slot *s = find(&l->pairs, side ? pair_key(b, id) : pair_key(id, a), 1);
            if (s->key[1] && (s->is.pair.count -= sum->count) < l->threshold)
                drop_pair(l, s);
            if (side && id == a)
                sum->count -= l->tokens[c].beside[0].count;
            TRY(add_pair(l, side ? c : id, side ? id : c, sum));
        }
    return BPE_OK;
}

/* fill the lists of the new pairs from the n places where c is now, and forget the neighbors */
static void list_new_pairs(bpe_learner *l, const uint32_t *places, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = l->replaced[i][0], y = l->replaced[i][1];
        if (l->tokens[x].beside[0].list)
            l->lists[l->tokens[x].beside[0].list++] = places[i] - l->tokens[x].length;
        if (l->tokens[y].beside[1].list)
            l->lists[l->tokens[y].beside[1].list++] = places[i];
    }
    for (unsigned side = 0; side < 2; side++)
        while (l->n_met[side])
            l->tokens[l->met[--l->n_met[side]][side]].beside[side] = (pair_sum){0, 0, 0};
}

/* add the pairs of a token, which is at n places, and its right neighbors, and list their places */
static int index_token(bpe_learner *l, uint32_t a, const uint32_t *places, size_t n)
{
    const size_t length = l->tokens[a].length;
    TRY(grow(&l->replaced, &l->replaced_capacity, n, sizeof *l->replaced));
    TRY(make_room_for_lists(l, n * (PLACES + 1)));
    for (size_t i = 0; i < n; i++) {
        const uint32_t y = l->seq[places[i] + length];
        if (i + AHEAD < n)
            prefetch_place(l, places[i + AHEAD], length);
        meet(l, 1, y, pair_key(a, y), l->counts[places[i] / BLOCK]);
        l->replaced[i][0] = NO_TOKEN; /* only pairs on the right are new */
        l->replaced[i][1] = y;
    }
    for (size_t i = 0; i < l->n_met[1]; i++)
        TRY(add_pair(l, a, l->met[i][1], &l->tokens[l->met[i][1]].beside[1]));
    list_new_pairs(l, places, n);
    return BPE_OK;
}

/* make the table of pairs and their lists again: sort all places by token, and take each token's */
static int index_pairs(bpe_learner *l)
{
    size_t n = 0;
    memset(l->pairs.slots, 0, l->pairs.capacity * sizeof *l->pairs.slots);
    l->pairs.used = l->n_lists = 0;
    for (size_t p = BLOCK; p < l->n_slots; p += l->tokens[l->seq[p]].length)
        l->tokens[l->seq[p]].places++;
    l->tokens[NO_TOKEN].places = 0;
    for (token *t = l->tokens + FIRST_ID; t < l->tokens + l->n_tokens; t++) {
        n += t->places;
        t->places = n - t->places;
    }
    if (!(l->places = allocate(n, sizeof *l->places)))
        return BPE_NO_MEMORY;
    for (size_t p = BLOCK; p < l->n_slots; p += l->tokens[l->seq[p]].length)
        if (l->seq[p] != NO_TOKEN)
            l->places[l->tokens[l->seq[p]].places++] = (uint32_t)p;
    n = 0;
    for (uint32_t a = FIRST_ID; a < l->n_tokens; a++) {
        TRY(index_token(l, a, l->places + n, l->tokens[a].places - n));
        n = l->tokens[a].places;
        l->tokens[a].places = 0;
    }
    free(l->places);
    l->places = NULL;
    return BPE_OK;
}

/* merge a pair, which leaves the table */
static int make_merge(bpe_learner *l, slot *pair, bpe_merge *merge)
{
    const uint32_t a = (uint32_t)(pair->key[0] >> 32), b = (uint32_t)pair->key[0], c = (uint32_t)l->n_tokens;
    const token x = l->tokens[a], y = l->tokens[b];
    const size_t length = (size_t)x.length + y.length, end = l->n_bytes;
    size_t list, n = l->lists[pair->is.pair.list + N_PLACES];
    *merge = (bpe_merge){a - FIRST_ID, b - FIRST_ID, pair->is.pair.count, 0};
    TRY(make_room_for_lists(l, 2 * n * (PLACES + 1))); /* each place makes two new pairs at most */
    list = pair->is.pair.list + PLACES;
    drop_pair(l, pair);
    TRY(grow(&l->bytes, &l->bytes_capacity, end + length, 1));
    TRY(grow(&l->replaced, &l->replaced_capacity, n, sizeof *l->replaced));
    memcpy(l->bytes + end, l->bytes + x.where, x.length);
    memcpy(l->bytes + end + x.length, l->bytes + y.where, y.length);
    TRY(add_token(l, length));
    n = replace_pairs(l, l->lists + list, n, a, b, c, &merge->replaced);
    TRY(update_pairs(l, a, b, c));
    list_new_pairs(l, l->lists + list, n);
    return BPE_OK;
}

/*
 * Refill the heap with pairs that occur at least half as often as those before: most pairs are too rare to be ever in
 * it, and a small heap is fast. If no pair in the table is frequent enough, and the threshold was raised, lower it.
 */
static int fill_heap(bpe_learner *l)
{
    l->n_heap = 0;
    if (l->level <= l->threshold) {
        if (l->threshold == l->floor)
            return BPE_DONE;
        l->level = l->threshold;
        l->threshold = l->threshold / 4 > l->floor ? l->threshold / 4 : l->floor;
        TRY(index_pairs(l));
        l->most_pairs = 2 * l->pairs.used > MOST_PAIRS ? 2 * l->pairs.used : MOST_PAIRS;
    }
    l->level = l->level / 2 > l->threshold ? l->level / 2 : l->threshold;
    for (const slot *s = l->pairs.slots; s < l->pairs.slots + l->pairs.capacity; s++)
        if (s->is.pair.count >= l->level)
            TRY(heap_push(l, (heap_entry){s->key[0], s->is.pair.count}));
    return BPE_OK;
}

int bpe_learner_run(bpe_learner *l, bpe_merge *merges, size_t most, size_t *made)
{
    size_t work = 0;
    for (*made = 0; *made < most && work < WORK_PER_CALL && l->status == BPE_OK;) {
        heap_entry *top = l->heap;
        slot *s = l->n_heap && top->count >= l->threshold ? find(&l->pairs, top->key, 1) : NULL;
        if (!l->wanted) {
            l->status = BPE_DONE;
        } else if (!s) {
            l->status = fill_heap(l);
            work += l->pairs.capacity;
        } else if (s->is.pair.count != top->count) { /* it fell, or the pair was merged or dropped */
            *top = s->is.pair.count >= l->level ? (heap_entry){top->key, s->is.pair.count} : l->heap[--l->n_heap];
            heap_down(l);
        } else if (l->pairs.used > l->most_pairs) { /* from now on, fewer pairs are added */
            l->threshold *= 2;
            l->most_pairs += l->most_pairs / 16;
        } else {
            work += l->lists[s->is.pair.list + N_PLACES];
            l->status = make_merge(l, s, merges + *made);
            *made += l->status == BPE_OK;
            l->wanted--;
        }
    }
    return l->status;
}

/* ---- 2. learning: a learner -------------------------------------------------------------------------------------- */

void bpe_learner_free(bpe_learner *l)
{
    if (!l)
        return;
    free(l->places);
    free_table(&l->pairs);
    free(l->seq);
    free(l->counts);
    free(l->byte_pairs);
    free(l->tokens);
    free(l->bytes);
    free(l->met);
    free(l->replaced);
    free(l->lists);
    free(l->heap);
    free(l);
}

/* add an empty token for NO_TOKEN, and the 256 single bytes */
static int add_first_tokens(bpe_learner *l, const uint8_t *id_of_byte)
{
    TRY(grow(&l->bytes, &l->bytes_capacity, 256, 1));
    TRY(add_token(l, 0));
    l->tokens[NO_TOKEN].length = 1; /* of an empty slot */
    for (unsigned byte = 0; byte < 256; byte++)
        l->bytes[id_of_byte[byte]] = (uint8_t)byte;
    for (unsigned id = 0; id < 256; id++)
        TRY(add_token(l, 1));
    return BPE_OK;
}

/* make the array and the pairs from a table of words, which is freed */
static int take_words(bpe_learner *l, table *words, const uint8_t *id_of_byte)
{
    slot *slots;
    sort_words(words->slots, words->capacity); /* empty slots, whose count is 0, are the last */
    if ((slots = realloc(words->slots, (words->used + 1) * sizeof *slots))) /* gives back a quarter of them, or more */
        words->slots = slots;
    TRY(add_first_tokens(l, id_of_byte));
    TRY(new_table(&l->pairs, FIRST_SLOTS, words->seed));
    TRY(new_array(l, words));
    TRY(write_words(l, words, id_of_byte));
    free_table(words);
    l->floor = l->threshold;
    return index_byte_pairs(l);
}

int bpe_learner_new(bpe_words *w, const uint8_t *id_of_byte, uint64_t merges_wanted, uint64_t min_frequency,
                    size_t max_token_length, int smaller_ids, bpe_learner **learner)
{
    bpe_learner *l = *learner = calloc(1, sizeof *l);
    int status = !w->table.slots ? BPE_USED_UP : l ? BPE_OK : BPE_NO_MEMORY;
    if (status == BPE_OK) {
        l->wanted = merges_wanted;
        l->threshold = min_frequency ? min_frequency : 1;
        l->level = COUNT_MAX;
        l->most_pairs = MOST_PAIRS;
        l->longest = max_token_length;
        l->smaller_ids = smaller_ids;
        status = take_words(l, &w->table, id_of_byte);
    }
    free_table(&w->table);
    if (l)
        l->status = status;
    return status;
}

/* ---- 3. encoding: the vocabulary --------------------------------------------------------------------------------- */

/* In this part, the id of a byte's token is the byte; the ids of tokens that merges make follow. */
enum { ID_BITS = 21, RANK_BITS = 22, BUCKET = 8, NO_RANK = 1 << RANK_BITS, NO_ID = (1 << ID_BITS) - 1 };

typedef struct { /* facts about a token so far; its bytes, if safe merges alone made it */
    uint8_t was_left, was_right, n_bytes, bytes[3];
} token_facts;

struct bpe_encoder {
    uint64_t *pairs; /* buckets of left id, right id, rank in 64 bits; all ones if empty */
    size_t n_buckets;
    uint32_t *made;    /* by rank: the token that the merge makes */
    uint32_t *outside; /* the ids of the vocabulary; UINT32_MAX for a byte without a token */
    uint32_t *special_ids;
    rules rules;
    uint64_t seed[2]; /* of the table of pairs, and of each cache */
    uint32_t byte_pairs[1 << 16]; /* the rank of each pair of bytes, or NO_RANK */
    uint32_t characters[1 << 16]; /* the token of a character of 2 or 3 bytes, if safe merges make it; or 0 */
};

static inline uint64_t pair_bits(uint32_t left, uint32_t right)
{
    return (uint64_t)left << (ID_BITS + RANK_BITS) | (uint64_t)right << RANK_BITS;
}

static inline size_t bucket_of(const bpe_encoder *e, uint64_t pair)
{
    return (size_t)((fold(pair >> RANK_BITS ^ e->seed[0], e->seed[1]) >> 32) * e->n_buckets >> 32);
}

static inline uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

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

/*
 * Fill the tables of pairs and of characters. A merge (a, b) -> c is safe, so that it can be made whenever b follows a,
 * if no earlier merge has a on its right or b on its left, and a is not b: no other merge can take one of them first.
 * This is why no merge may use a token that a later one makes: (x, c) could have a lower rank than (a, b).
 */
static void index_merges(bpe_encoder *e, const uint32_t *merges, uint32_t n_merges, token_facts *facts)
{
    for (size_t i = 0; i < 1 << 16; i++)
        e->byte_pairs[i] = NO_RANK;
    for (unsigned i = 0; i < 256; i++)
        facts[i] = (token_facts){0, 0, 1, {(uint8_t)i, 0, 0}};
    memset(e->pairs, 255, e->n_buckets * BUCKET * sizeof *e->pairs);
    for (uint32_t rank = 0; rank < n_merges; rank++, merges += 3) {
        const uint32_t left = merges[0], right = merges[1], made = e->made[rank] = merges[2];
        token_facts *a = facts + left, *b = facts + right, *c = facts + made;
        size_t i = bucket_of(e, pair_bits(left, right)) * BUCKET;
        while (e->pairs[i] != UINT64_MAX)
            i = i + 1 < e->n_buckets * BUCKET ? i + 1 : 0;
        e->pairs[i] = pair_bits(left, right) | rank;
        if ((left | right) < 256)
            e->byte_pairs[left << 8 | right] = rank;
        if (a != b && !a->was_right && !b->was_left)
            note_character(e, a, b, c, made);
        a->was_left = 1;
        b->was_right = 1;
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
    free_rules(&e->rules);
    free(e);
}

static uint32_t *copy_of(const uint32_t *ids, size_t n)
{
    uint32_t *copy = allocate(n, sizeof *copy);
    return copy && n ? memcpy(copy, ids, n * sizeof *copy) : copy;
}

int bpe_encoder_new(const uint32_t *ids, size_t n_ids, const uint32_t *merges, size_t n_merges,
                    const uint8_t *special_bytes, const size_t *lengths, const uint32_t *special_ids, size_t n_specials,
                    int pattern, const uint64_t seed[2], bpe_encoder **encoder)
{
    bpe_encoder *e = *encoder = calloc(1, sizeof *e);
    token_facts *facts;
    if (!e)
        return BPE_NO_MEMORY;
    if (n_ids >= NO_ID || n_merges >= NO_ID)
        return BPE_OVERFLOW;
    if (n_ids < 256)
        return BPE_BAD_ARGUMENT;
    for (size_t i = 0; i < 3 * n_merges; i++)
        if (merges[i] >= n_ids)
            return BPE_BAD_ARGUMENT;
    TRY(new_rules(&e->rules, special_bytes, lengths, n_specials, pattern, seed));
    memcpy(e->seed, seed, sizeof e->seed);
    e->n_buckets = n_merges * 2 / BUCKET + 1; /* half full */
    e->pairs = allocate(e->n_buckets, BUCKET * sizeof *e->pairs);
    e->made = allocate(n_merges, sizeof *e->made);
    e->outside = copy_of(ids, n_ids);
    e->special_ids = copy_of(special_ids, n_specials);
    facts = allocate(n_ids, sizeof *facts);
    if (e->pairs && e->made && e->outside && e->special_ids && facts)
        index_merges(e, merges, (uint32_t)n_merges, facts);
    free(facts);
    return e->pairs && e->made && e->outside && e->special_ids && facts ? BPE_OK : BPE_NO_MEMORY;
}

/* ---- 3. encoding: one word --------------------------------------------------------------------------------------- */

enum { SHORT = 62 }; /* ids that are merged within an array, with NO_ID on each side */

/*
 * Merge n ids, at most SHORT, and return how many remain. keys[i] is the rank of the pair that begins at place i, and i
 * itself, so that the least is the leftmost pair of lowest rank. A bit of `live` is a place where a token begins.
 */
static size_t merge_short(const bpe_encoder *e, uint32_t *out, size_t n)
{
    const uint32_t last = (uint32_t)n + 1, padded = (last + 7) & ~7u;
    uint32_t ids[SHORT + 2], keys[SHORT + 2], least = UINT32_MAX;
    uint64_t live = bits_below(last + 1);
    ids[0] = ids[last] = NO_ID;
    memcpy(ids + 1, out, n * sizeof *out);
    memset(keys, 255, padded * sizeof *keys);
    for (uint32_t i = 1; i + 1 < last; i++) {
        const uint32_t left = ids[i], right = ids[i + 1];
        keys[i] = ((left | right) < 256 ? e->byte_pairs[left << 8 | right] : rank_of(e, left, right)) << 6 | i;
        least = keys[i] < least ? keys[i] : least;
    }
    while (least >> 6 < NO_RANK) {
        uint32_t i = least & 63, second = lowest_bit(live & ~bits_below(i + 1)), before, after, others = UINT32_MAX;
        live &= ~((uint64_t)1 << second);
        after = lowest_bit(live & ~bits_below(second));
        before = highest_bit(live & bits_below(i));
        ids[i] = e->made[least >> 6];
        keys[i] = keys[before] = keys[second] = UINT32_MAX;
        for (uint32_t k = 0; k < padded; k++) /* meanwhile, the processor waits for the table of pairs */
            others = keys[k] < others ? keys[k] : others;
        keys[i] = rank_of(e, ids[i], ids[after]) << 6 | i;
        keys[before] = rank_of(e, ids[before], ids[i]) << 6 | before;
        least = keys[i] < keys[before] ? keys[i] : keys[before];
        least = others < least ? others : least;
    }
    n = 0;
    for (live &= bits_below(last) & ~(uint64_t)1; live; live &= live - 1)
        out[n++] = ids[lowest_bit(live)];
    return n;
}

typedef struct { uint32_t id, before, after; } place;

/* Set the leaf of the pair at a place. A node is the lesser of its two children, so node 1 is the least leaf. */
static void set_leaf(uint64_t *tree, size_t places, size_t at, uint32_t rank)
{
    size_t i = places + at;
    for (tree[i] = (uint64_t)rank << 32 | at; i > 1; i /= 2)
        tree[i / 2] = lesser(tree[i], tree[i ^ 1]);
}

/* Merge any number of ids in n log n: they are linked, and a tree finds the least pair. */
static int merge_long(const bpe_encoder *e, uint32_t *out, size_t *n)
{
    const size_t places = *n + 2, last = *n + 1;
    uint64_t *tree = places < UINT32_MAX ? allocate(places, 2 * sizeof *tree + sizeof(place)) : NULL;
    place *p = (place *)(tree + 2 * places);
    if (!tree)
        return places < UINT32_MAX ? BPE_NO_MEMORY : BPE_OVERFLOW;
    memset(tree, 255, 2 * places * sizeof *tree);
    for (size_t i = 0; i <= last; i++)
        p[i] = (place){i % last ? out[i - 1] : NO_ID, (uint32_t)i - 1, (uint32_t)i + 1};
    for (size_t i = 1; i + 1 < last; i++)
        set_leaf(tree, places, i, rank_of(e, p[i].id, p[i + 1].id));
    while (tree[1] >> 32 < NO_RANK) {
        uint32_t i = (uint32_t)tree[1], second = p[i].after, before = p[i].before, after = p[second].after;
        p[i].id = e->made[tree[1] >> 32];
        p[i].after = after;
        p[after].before = i;
        set_leaf(tree, places, second, NO_RANK);
        set_leaf(tree, places, i, rank_of(e, p[i].id, p[after].id));
        set_leaf(tree, places, before, rank_of(e, p[before].id, p[i].id));
    }
    *n = 0;
    for (size_t i = 1; i < last; i = p[i].after)
        out[(*n)++] = p[i].id;
    free(tree);
    return BPE_OK;
}

/* Encode a word of `length` bytes, for whose ids there is as much room. */
static int merge_word(const bpe_encoder *e, const uint8_t *word, size_t length, uint32_t *out, size_t *n)
{
    *n = 0;
    for (size_t i = 0, size; i < length; i += size) {
        uint32_t character = 0, id = 0;
        size = decode(word + i, word + length, &character);
        if (size > 1 && character <= UINT16_MAX)
            id = e->characters[character];
        if (!id) {
            size = 1;
            id = word[i];
            if (e->outside[id] == UINT32_MAX)
                return BPE_NO_TOKEN;
        }
        out[(*n)++] = id;
    }
    if (*n <= SHORT)
        *n = merge_short(e, out, *n);
    else
        TRY(merge_long(e, out, n));
    for (size_t i = 0; i < *n; i++)
        out[i] = e->outside[out[i]];
    return BPE_OK;
}

/* ---- 3. encoding: text ------------------------------------------------------------------------------------------- */

struct bpe_cache {
    table table;
    const bpe_encoder *encoder;
    uint8_t *ids; /* of the text */
    size_t n, width; /* width: of an id, in bytes */
};

void bpe_cache_free(bpe_cache *c)
{
    if (!c)
        return;
    free_table(&c->table);
    free(c);
}

int bpe_cache_new(const bpe_encoder *e, int narrow, bpe_cache **cache)
{
    bpe_cache *c = *cache = calloc(1, sizeof *c);
    if (!c)
        return BPE_NO_MEMORY;
    c->encoder = e;
    c->width = narrow ? 2 : 4;
    return new_table(&c->table, CACHE_SLOTS < FIRST_SLOTS ? CACHE_SLOTS : FIRST_SLOTS, e->seed);
}

/*
 * Cache the ids of a word, if there is memory: in its slot if the word is short and they fit there, otherwise the word
 * and then its ids in the arena. A full table grows up to CACHE_SLOTS; after that, it is emptied.
 */
static void keep_ids(bpe_cache *c, uint64_t key[2], const uint8_t *word, size_t length, const uint8_t *ids, size_t n)
{
    table *t = &c->table;
    const size_t id_bytes = n * c->width;
    const int in_slot = length <= INLINE_MAX && id_bytes <= ID_BYTES;
    const size_t n_bytes = in_slot ? 0 : length + id_bytes;
    slot *s;
    if (n_bytes > t->capacity * ARENA_PER_SLOT)
        return;
    if (t->used + 1 >= t->capacity / 3 * 2 || t->arena_size + n_bytes > t->capacity * ARENA_PER_SLOT)
        if (t->capacity >= CACHE_SLOTS || resize(t, 2 * t->capacity) != BPE_OK) {
            memset(t->slots, 0, t->capacity * sizeof *t->slots);
            t->used = t->arena_size = 0;
        }
    if (n_bytes && (keep_bytes(t, word, length) != BPE_OK || keep_bytes(t, ids, id_bytes) != BPE_OK))
        return;
    s = add_key(t, key[0], key[1]); /* there is room */
    s->is.known.n = (uint32_t)n;
    if (in_slot)
        memcpy(s->is.known.ids, ids, id_bytes);
    else
        s->is.word.where = t->arena_size - n_bytes;
}

/* Write ids at the end of the output, which may overlap them if they are behind it. */
static void put_ids(bpe_cache *c, const uint32_t *ids, size_t n)
{
    uint8_t *out = c->ids + c->n * c->width;
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = ids[i];
        const uint16_t narrow = (uint16_t)id;
        memcpy(out + i * c->width, c->width == 2 ? (const void *)&narrow : &id, c->width);
    }
    c->n += n;
}

/* Encode a word whose ids are not in its home slot. */
static NOINLINE int encode_other(bpe_cache *c, pending *p)
{
    const slot *s = find_word(&c->table, p->key, p->word, p->length);
    uint32_t *ids = (uint32_t *)(void *)c->ids + c->n; /* the rest of the output has room for them */
    uint8_t *out = c->ids + c->n * c->width;
    size_t n = s->is.known.n;
    if (!s->key[1]) {
        TRY(merge_word(c->encoder, p->word, p->length, ids, &n));
        put_ids(c, ids, n);
        keep_ids(c, p->key, p->word, p->length, out, n);
        return BPE_OK;
    }
    if (p->length > INLINE_MAX || n * c->width > ID_BYTES)
        memcpy(out, c->table.arena + s->is.word.where + p->length, n * c->width);
    else
        memcpy(out, s->is.known.ids, n * c->width);
    c->n += n;
    return BPE_OK;
}

/* the sink that encodes */
ALWAYS_INLINE int encode_words(bpe_cache *c, pending *words, size_t n, size_t width)
{
    uint8_t *out = c->ids + c->n * width;
    for (pending *p = words; p < words + n; p++) {
        const slot *s = c->table.slots + p->home;
        if (LIKELY(s->key[0] == p->key[0] && s->key[1] == p->key[1] && p->length <= INLINE_MAX &&
                   s->is.known.n <= ID_BYTES / width)) {
            memcpy(out, s->is.known.ids, ID_BYTES); /* always all: this avoids a loop */
            out += s->is.known.n * width;
        } else {
            c->n = (size_t)(out - c->ids) / width;
            TRY(encode_other(c, p));
            out = c->ids + c->n * width;
        }
    }
    c->n = (size_t)(out - c->ids) / width;
    return BPE_OK;
}

static int encode_batch(void *state, pending *words, size_t n, size_t special)
{
    bpe_cache *c = state;
    TRY(c->width == 2 ? encode_words(c, words, n, 2) : encode_words(c, words, n, 4));
    if (special)
        put_ids(c, c->encoder->special_ids + special - 1, 1);
    return BPE_OK;
}

int bpe_encode(bpe_cache *c, const uint8_t *text, size_t length, void *ids, size_t *n_ids)
{
    batch b = {.rules = &c->encoder->rules, .table = &c->table, .sink = encode_batch, .state = c,
               .text = text, .limit = text + length};
    int status;
    c->ids = ids;
    c->n = 0;
    (void)fit_table(&c->table, length, CACHE_SLOTS / 4); /* without memory, it stays as it is */
    status = scan_text(&b, b.limit);
    *n_ids = c->n;
    return status;
}
