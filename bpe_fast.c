/*
 * bpe_fast.c: the same answer as bpe.py, as fast as the machine allows.
 *
 * The Python engine in bpe.py is the definition; read it first. This file counts words and learns merges, nothing else.
 * build_ffi.py puts two things in front of it: the prototypes of its public functions, with the return codes and the
 * structures that Python sees, and the table of character classes, made from the installed regex package.
 *
 * THE TWO HANDLES
 *
 *   bpe_words    distinct words and how often each occurs: the result of scanning text, or of a list from Python
 *   bpe_learner  takes the words over, and hands out merges, a batch at a time
 *
 * There are no globals that change, so different threads may use different handles. Nothing here prints or exits.
 *
 * RETURN CODES
 *
 *   BPE_OK          done
 *   BPE_NO_MEMORY   an allocation failed; the handle can only be freed
 *   BPE_BAD_UTF8    text that is not UTF-8; the offset of the first bad byte is handed out
 *   BPE_OVERFLOW    a count above 2^63 - 1, more than 2^32 bytes of distinct words or tokens, an id that is not there
 *
 * PART 1, WORDS. An open-addressing table; a slot is 24 bytes and holds words of up to 15 bytes in place:
 *
 *     slot.key    n e w e s t . . | . . . . . . . 6     the bytes, zeros, and the length in the last byte
 *     slot.key    hash, 8 bytes   | where, 7 b.   255   a longer word: its bytes lie in the arena, length first
 *     slot.count  6                                     0: the slot is empty
 *
 * The pattern is GPT-2's:  '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A window of 64 bytes that begins with a word is classified at once, a bit for each byte: letter, number, whitespace.
 * Shifts and ands of these masks give the bits at which words begin; the next window begins with the last of them, so
 * nothing is carried from one window to the next.
 *
 * PART 2, LEARNING. All distinct words lie one after the other in one array, the frequent ones first, one slot for each
 * byte (or other first symbol), with walls between them. A token's id stands in its first and in its last slot:
 *
 *     bytes      n e w e s t           after  e+st -> est:     seq   # n e w est dead est # ...
 *     seq      # n e w e s t # ...            (st before it)             |        |
 *                                                                   first slot  last slot
 *
 * so the neighbours of a token at p are seq[p - 1] and seq[p + span], without links. The index of a pair is an ascending
 * list of first slots. An entry is stale, and skipped, if the two ids no longer stand there; DEAD marks slots inside a
 * token, so that they can't look like one. Words of equal count lie together, so the count of a position is found by
 * walking forward through the groups.
 *
 * A merge (a, b) -> c goes through its list once and adds up, for each neighbour x on the left and y on the right, how
 * much the pairs (x, a), (b, y) lose and (x, c), (c, y) gain; then it touches the table of pairs once for each distinct
 * neighbour. Where c comes to stand beside c, the left one had seen an a on its right, and counted (c, a): that is taken
 * off again before anything is put into the table.
 *
 * Counts only fall, so a pair that is too rare to be merged soon need not be known now: only pairs with a count of at
 * least `threshold` are in the table, with their lists. When they run out, the threshold goes down and the table is
 * built anew from the array. The heap holds a stale count at worst, never one that is too small.
 * Merges that are given (to go on from an earlier training) may be of any pair, so while they are made all are in it.
 *
 * COST  counting: a few nanoseconds a word. Learning: one pass over the array for each threshold, and for each merge its
 *       list, plus its distinct neighbours.
 * MEMORY  words: 24 bytes a slot, 1/3 to 2/3 full, and the bytes of long words. Learner: 4 bytes for each byte of
 *       distinct words, and 4 for each position in a list.
 */

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__AVX512BW__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(_MSC_VER)
#include <intrin.h>
#endif

#define COUNT_MAX ((uint64_t)INT64_MAX)
#define WINDOW 64
#define READABLE 80 /* a window, and 16 bytes from any place in it */
#define INLINE_MAX 15
#define LONG_WORD 255
#ifndef HUGE_FROM
#define HUGE_FROM ((size_t)8 << 20) /* bytes from which on a block gets huge pages */
#endif

/* ---- small things ------------------------------------------------------------------------------------------------ */

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define PREFETCH(p) __builtin_prefetch(p)
static inline unsigned lowest_bit(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
static inline unsigned highest_bit(uint64_t x) { return 63u - (unsigned)__builtin_clzll(x); }
#else
#define LIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
static inline unsigned lowest_bit(uint64_t x)
{
    unsigned i = 0;
    while (!(x >> i & 1))
        i++;
    return i;
}
static inline unsigned highest_bit(uint64_t x)
{
    unsigned i = 63;
    while (!(x >> i & 1))
        i--;
    return i;
}
#endif

static inline uint64_t load8(const void *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

static inline uint64_t bits_below(unsigned n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9E3779B97F4A7C15u ^ (b << 32 | b >> 32) * 0xC2B2AE3D27D4EB4Fu;
    x ^= x >> 32;
    return x * 0xD6E8FEB86659FD93u;
}

/* n elements of a size, zeroed if asked for; large blocks get huge pages, where there are any */
static void *allocate(size_t n, size_t size, int zero)
{
    if (n > SIZE_MAX / 2 / size)
        return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (n * size >= HUGE_FROM) {
        size_t huge = (size_t)2 << 20, rounded = (n * size + huge - 1) / huge * huge;
        void *block = aligned_alloc(huge, rounded);
        if (block)
            (void)madvise(block, rounded, MADV_HUGEPAGE); /* advice; without it all is as right, and slower */
        if (block && zero)
            memset(block, 0, n * size);
        return block;
    }
#endif
    n = n ? n : 1; /* so that NULL means one thing only */
    return zero ? calloc(n, size) : malloc(n * size);
}

/* make room for `needed` elements in a block that grows by half; the old block stays as it was on failure */
static int grow(void *block_address, size_t *capacity, size_t needed, size_t size)
{
    void *block;
    size_t wanted = *capacity + *capacity / 2 + 64;
    if (needed <= *capacity)
        return BPE_OK;
    if (wanted < needed)
        wanted = needed;
    if (wanted > SIZE_MAX / 2 / size)
        return BPE_NO_MEMORY;
    memcpy(&block, block_address, sizeof block);
    block = realloc(block, wanted * size);
    if (!block)
        return BPE_NO_MEMORY;
    memcpy(block_address, &block, sizeof block);
    *capacity = wanted;
    return BPE_OK;
}

/* ---- 1. words: the table ----------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t key[2];
    uint64_t count;
} word_slot;

struct bpe_words {
    word_slot *slots;
    size_t capacity, used; /* capacity is a power of two */
    unsigned shift;        /* 64 - log2(capacity) */
    uint8_t *arena;        /* of long words: 8 bytes of length, then the word */
    size_t arena_size, arena_capacity;
    uint8_t *specials; /* special tokens, one after the other, longest first */
    size_t *special_lengths;
    size_t n_specials;
    uint8_t special_starts[256]; /* 1 for a byte that a special token begins with */
    int one_start;               /* the byte, if there is only one such byte; else -1 */
    uint64_t keep[INLINE_MAX + 1][2], tag[INLINE_MAX + 1]; /* a word of n bytes: key = (16 bytes & keep[n]) + tag[n] */
};

static int table_new(word_slot **slots, size_t capacity)
{
    *slots = allocate(capacity, sizeof **slots, 1);
    return *slots ? BPE_OK : BPE_NO_MEMORY;
}

static uint64_t hash_key(const uint64_t key[2])
{
    uint8_t tag;
    memcpy(&tag, (const uint8_t *)key + 15, 1);
    return tag == LONG_WORD ? key[0] : mix(key[0], key[1]);
}

static uint64_t hash_bytes(const uint8_t *word, size_t length)
{
    uint64_t h = length, last = 0;
    for (; length >= 8; word += 8, length -= 8)
        h = mix(h ^ load8(word), h);
    memcpy(&last, word, length);
    return mix(h ^ last, h);
}

static size_t long_where(const word_slot *slot)
{
    size_t where = 0;
    const uint8_t *bytes = (const uint8_t *)slot->key + 8;
    for (unsigned i = 0; i < 7; i++)
        where |= (size_t)bytes[i] << 8 * i;
    return where;
}

/* the bytes and the length of the word in a slot */
static const uint8_t *slot_word(const bpe_words *w, const word_slot *slot, size_t *length)
{
    const uint8_t *bytes = (const uint8_t *)slot->key;
    uint64_t long_length;
    if (bytes[15] != LONG_WORD) {
        *length = bytes[15];
        return bytes;
    }
    bytes = w->arena + long_where(slot);
    memcpy(&long_length, bytes, 8);
    *length = (size_t)long_length;
    return bytes + 8;
}

static int table_double(bpe_words *w)
{
    word_slot *slots;
    size_t capacity = w->capacity * 2, mask = capacity - 1;
    unsigned shift = w->shift - 1;
    if (table_new(&slots, capacity) != BPE_OK)
        return BPE_NO_MEMORY;
    for (size_t i = 0; i < w->capacity; i++) {
        size_t j;
        if (!w->slots[i].count)
            continue;
        for (j = (size_t)(hash_key(w->slots[i].key) >> shift); slots[j].count; j = (j + 1) & mask)
            ;
        slots[j] = w->slots[i];
    }
    free(w->slots);
    w->slots = slots;
    w->capacity = capacity;
    w->shift = shift;
    return BPE_OK;
}

static int add_count(uint64_t *count, uint64_t more)
{
    if (more > COUNT_MAX - *count)
        return BPE_OVERFLOW;
    *count += more;
    return BPE_OK;
}

/* a new word into an empty slot */
static int slot_fill(bpe_words *w, word_slot *slot, uint64_t key0, uint64_t key1, uint64_t count)
{
    slot->key[0] = key0;
    slot->key[1] = key1;
    slot->count = count;
    return ++w->used > w->capacity / 3 * 2 ? table_double(w) : BPE_OK;
}

static inline int put_short(bpe_words *w, uint64_t key0, uint64_t key1, uint64_t count)
{
    size_t mask = w->capacity - 1, i = (size_t)(mix(key0, key1) >> w->shift);
    for (;; i = (i + 1) & mask) {
        word_slot *slot = w->slots + i;
        if (LIKELY(slot->key[0] == key0 && slot->key[1] == key1))
            return add_count(&slot->count, count);
        if (!slot->count)
            return slot_fill(w, slot, key0, key1, count);
    }
}

static int put_long(bpe_words *w, const uint8_t *word, size_t length, uint64_t count)
{
    uint64_t hash = hash_bytes(word, length), key[2] = {hash, 0}, length8 = length;
    size_t mask = w->capacity - 1, where = w->arena_size;
    uint8_t *bytes = (uint8_t *)key;
    size_t i = (size_t)(hash >> w->shift);
    for (; w->slots[i].count; i = (i + 1) & mask) {
        word_slot *slot = w->slots + i;
        size_t other_length;
        const uint8_t *other;
        if (slot->key[0] != hash || ((const uint8_t *)slot->key)[15] != LONG_WORD)
            continue;
        other = slot_word(w, slot, &other_length);
        if (other_length == length && !memcmp(other, word, length))
            return add_count(&slot->count, count);
    }
    if (length > SIZE_MAX / 4 || grow(&w->arena, &w->arena_capacity, where + 8 + length, 1) != BPE_OK)
        return BPE_NO_MEMORY;
    memcpy(w->arena + where, &length8, 8);
    memcpy(w->arena + where + 8, word, length);
    w->arena_size = where + 8 + length;
    for (unsigned k = 0; k < 7; k++)
        bytes[8 + k] = (uint8_t)(where >> 8 * k);
    bytes[15] = LONG_WORD;
    return slot_fill(w, w->slots + i, key[0], key[1], count);
}

static int put_word(bpe_words *w, const uint8_t *word, size_t length, uint64_t count)
{
    uint64_t key[2] = {0, 0};
    if (length > INLINE_MAX)
        return put_long(w, word, length, count);
    memcpy(key, word, length);
    ((uint8_t *)key)[15] = (uint8_t)length;
    return put_short(w, key[0], key[1], count);
}

void bpe_words_free(bpe_words *w)
{
    if (!w)
        return;
    free(w->slots);
    free(w->arena);
    free(w->specials);
    free(w->special_lengths);
    free(w);
}

/* an empty table, for text with these special tokens (longest first, none empty); NULL without memory */
bpe_words *bpe_words_new(const uint8_t *specials, const size_t *lengths, size_t n)
{
    bpe_words *w = calloc(1, sizeof *w);
    size_t total = 0, starts = 0;
    if (!w)
        return NULL;
    for (size_t i = 0; i < n; i++)
        total += lengths[i];
    w->capacity = 1 << 12;
    w->shift = 64 - 12;
    w->specials = allocate(total, 1, 0);
    w->special_lengths = allocate(n, sizeof *lengths, 0);
    if (table_new(&w->slots, w->capacity) != BPE_OK || !w->specials || !w->special_lengths) {
        bpe_words_free(w);
        return NULL;
    }
    for (unsigned i = 0; i <= INLINE_MAX; i++) {
        memset(w->keep[i], 255, i);
        ((uint8_t *)&w->tag[i])[7] = (uint8_t)i;
    }
    w->n_specials = n;
    w->one_start = -1;
    if (n) {
        memcpy(w->specials, specials, total);
        memcpy(w->special_lengths, lengths, n * sizeof *lengths);
    }
    for (size_t i = 0, at = 0; i < n; at += lengths[i++]) {
        starts += !w->special_starts[specials[at]];
        w->special_starts[specials[at]] = 1;
        w->one_start = starts == 1 ? specials[at] : -1;
    }
    return w;
}

/* add n words and their counts; the words lie one after the other */
int bpe_words_put(bpe_words *w, const uint8_t *bytes, const size_t *lengths, const uint64_t *counts, size_t n)
{
    for (size_t i = 0; i < n; bytes += lengths[i++]) {
        int status;
        if (!lengths[i] || !counts[i])
            continue;
        status = counts[i] > COUNT_MAX ? BPE_OVERFLOW : put_word(w, bytes, lengths[i], counts[i]);
        if (status != BPE_OK)
            return status;
    }
    return BPE_OK;
}

/* add all words of another table, which stays as it is */
int bpe_words_add(bpe_words *w, const bpe_words *other)
{
    while (w->capacity < other->capacity) /* words come in the order of their hashes, and would pile up in a smaller one */
        if (table_double(w) != BPE_OK)
            return BPE_NO_MEMORY;
    for (size_t i = 0; i < other->capacity; i++) {
        size_t length;
        const uint8_t *word;
        int status;
        if (!other->slots[i].count)
            continue;
        word = slot_word(other, other->slots + i, &length);
        status = put_word(w, word, length, other->slots[i].count);
        if (status != BPE_OK)
            return status;
    }
    return BPE_OK;
}

/* how many distinct words, their bytes, all their occurrences, and the bytes of these */
void bpe_words_totals(const bpe_words *w, bpe_totals *totals)
{
    memset(totals, 0, sizeof *totals);
    totals->words = w->used;
    for (size_t i = 0; i < w->capacity; i++) {
        size_t length;
        if (!w->slots[i].count)
            continue;
        (void)slot_word(w, w->slots + i, &length);
        totals->bytes += length;
        totals->pretokens += w->slots[i].count;
        totals->bytes_in_words += w->slots[i].count * length;
    }
}

/* all words, one after the other, with their lengths and counts, into blocks that are as large as the totals say */
void bpe_words_get(const bpe_words *w, uint8_t *bytes, size_t *lengths, uint64_t *counts)
{
    for (size_t i = 0; i < w->capacity; i++) {
        const uint8_t *word;
        if (!w->slots[i].count)
            continue;
        word = slot_word(w, w->slots + i, lengths);
        memcpy(bytes, word, *lengths);
        bytes += *lengths++;
        *counts++ = w->slots[i].count;
    }
}

/* ---- 1. words: scanning text ------------------------------------------------------------------------------------- */

enum { OTHER, LETTER, NUMBER, SPACE }; /* the classes in bpe_class_blocks */

typedef struct {
    uint64_t high, letter, number, space, blank, quote; /* a bit a byte; blank is U+0020, quote the apostrophe */
} masks;

#if defined(__AVX512BW__)

static inline void ascii_masks(const uint8_t *p, masks *m)
{
    __m512i v = _mm512_loadu_si512((const void *)p);
    __m512i lower = _mm512_or_si512(v, _mm512_set1_epi8(0x20));
    m->high = _mm512_movepi8_mask(v);
    m->letter = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(lower, _mm512_set1_epi8('a')), _mm512_set1_epi8(26));
    m->number = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8('0')), _mm512_set1_epi8(10));
    m->blank = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(' '));
    m->space = m->blank | _mm512_cmplt_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8('\t')), _mm512_set1_epi8(5));
    m->quote = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\''));
}

#elif defined(__AVX2__)

static inline uint64_t below(__m256i v0, __m256i v1, char first, char n)
{
    /* bytes from first to first + n - 1, as signed comparisons after a shift to the bottom of the range */
    __m256i shift = _mm256_set1_epi8((char)(first - 128)), limit = _mm256_set1_epi8((char)(n - 128));
    uint64_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(limit, _mm256_sub_epi8(v0, shift)));
    uint64_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(limit, _mm256_sub_epi8(v1, shift)));
    return low | high << 32;
}

static inline void ascii_masks(const uint8_t *p, masks *m)
{
    __m256i v0 = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i v1 = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
    __m256i lower = _mm256_set1_epi8(0x20);
    m->high = (uint32_t)_mm256_movemask_epi8(v0) | (uint64_t)(uint32_t)_mm256_movemask_epi8(v1) << 32;
    m->letter = below(_mm256_or_si256(v0, lower), _mm256_or_si256(v1, lower), 'a', 26);
    m->number = below(v0, v1, '0', 10);
    m->blank = below(v0, v1, ' ', 1);
    m->space = m->blank | below(v0, v1, '\t', 5);
    m->quote = below(v0, v1, '\'', 1);
}

#else

/* a bit for each of 8 bytes below 128 that is in first .. first + n - 1 */
static inline uint64_t in_range(uint64_t v, unsigned first, unsigned n)
{
    const uint64_t ones = 0x0101010101010101u, tops = ones * 0x80;
    uint64_t from = (v | tops) - ones * first;     /* the top bit stays where byte >= first */
    uint64_t to = (v | tops) - ones * (first + n); /* and here where byte >= first + n */
    uint64_t bits = (from & ~to & ~v & tops) >> 7;
    return bits * 0x0102040810204080u >> 56; /* the eight bits side by side */
}

static inline void ascii_masks(const uint8_t *p, masks *m)
{
    memset(m, 0, sizeof *m);
    for (unsigned i = 0; i < 64; i += 8, p += 8) {
        uint64_t v = 0, cases = 0x2020202020202020u;
        for (unsigned k = 0; k < 8; k++)
            v |= (uint64_t)p[k] << 8 * k;
        m->high |= (v >> 7 & 0x0101010101010101u) * 0x0102040810204080u >> 56 << i;
        m->letter |= in_range(v | cases, 'a', 26) << i;
        m->number |= in_range(v, '0', 10) << i;
        m->blank |= in_range(v, ' ', 1) << i;
        m->space |= (in_range(v, ' ', 1) | in_range(v, '\t', 5)) << i;
        m->quote |= in_range(v, '\'', 1) << i;
    }
}

#endif

/* length in bytes of the character at p, 0 if the bytes up to end are not UTF-8, as Python's decoder has it */
static inline unsigned decode(const uint8_t *p, const uint8_t *end, uint32_t *character)
{
    size_t left = (size_t)(end - p);
    uint32_t c = p[0];
    if (c < 0x80) {
        *character = c;
        return 1;
    }
    if (c < 0xC2 || left < 2 || (p[1] & 0xC0) != 0x80)
        return 0;
    if (c < 0xE0) {
        *character = (c & 0x1F) << 6 | (p[1] & 0x3Fu);
        return 2;
    }
    if (left < 3 || (p[2] & 0xC0) != 0x80)
        return 0;
    if (c < 0xF0) {
        *character = c = (c & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
        return c >= 0x800 && (c < 0xD800 || c > 0xDFFF) ? 3 : 0;
    }
    if (left < 4 || (p[3] & 0xC0) != 0x80)
        return 0;
    *character = c = (c & 0x0F) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
    return p[0] < 0xF5 && c >= 0x10000 && c <= 0x10FFFF ? 4 : 0;
}

static inline unsigned class_of(uint32_t character)
{
    return bpe_class_blocks[bpe_class_index[character >> 8]][character & 0xFF];
}

/*
 * Add the characters beyond ASCII to the masks: all bytes of a character get its class. *n is how many bytes of the
 * window are known; it falls to the last whole character when the text goes on behind the window (left > n).
 */
static int wide_masks(const uint8_t *window, unsigned *n, size_t left, masks *m, unsigned *bad)
{
    uint64_t high = m->high & bits_below(*n), wide_space = 0, first = 0;
    while (high) {
        unsigned i = lowest_bit(high), length, class;
        uint32_t character;
        uint64_t bits;
        length = decode(window + i, window + (left < READABLE ? left : READABLE), &character);
        if (!length) {
            *bad = i;
            return BPE_BAD_UTF8;
        }
        if (i + length > *n) {
            *n = i;
            break;
        }
        bits = bits_below(length) << i;
        high &= ~bits;
        class = class_of(character);
        if (class == LETTER)
            m->letter |= bits;
        else if (class == NUMBER)
            m->number |= bits;
        else if (class == SPACE) {
            wide_space |= bits;
            first |= (uint64_t)1 << i;
        }
    }
    m->space |= wide_space;
    m->high = wide_space & ~first; /* from here on: the bytes of whitespace behind the first */
    return BPE_OK;
}

/* the bits at which words begin, in a window that begins with one */
static inline uint64_t word_starts(const uint8_t *window, const masks *m, unsigned n, size_t left)
{
    uint64_t known = bits_below(n), other = ~(m->letter | m->number | m->space) & known;
    uint64_t solid = (m->letter | m->number | other) & known, space = m->space & known;
    uint64_t same = (m->letter & m->letter << 1) | (m->number & m->number << 1) | (other & other << 1);
    uint64_t last = space & solid >> 1; /* whitespace that something follows */
    uint64_t starts, quotes, wide = last & m->high;
    while (wide) { /* the last whitespace has several bytes: its word begins with the first of them */
        unsigned i = lowest_bit(wide);
        last &= ~((uint64_t)1 << i);
        last |= (uint64_t)1 << highest_bit(space & ~m->high & bits_below(i));
        wide &= wide - 1;
    }
    starts = (solid & ~same & ~(m->blank << 1)) | (space & ~(space << 1)) | last | 1;
    for (quotes = m->quote & starts & known; quotes; quotes &= quotes - 1) { /* 's 't 'm 'd 'll 've 're */
        unsigned i = lowest_bit(quotes), length = 0;
        uint8_t a = i + 1 < left ? window[i + 1] : 0, b = i + 2 < left ? window[i + 2] : 0;
        if (a == 's' || a == 't' || a == 'm' || a == 'd')
            length = 2;
        else if ((a == 'l' && b == 'l') || ((a == 'v' || a == 'r') && b == 'e'))
            length = 3;
        if (length && i + 1 < 64) {
            starts &= ~((uint64_t)1 << (i + 1));
            if (i + length < n)
                starts |= (uint64_t)1 << (i + length);
        }
    }
    return starts & known;
}

/*
 * The length of a word that is longer than a window: walk to where its class ends. Whitespace gives its last character
 * to the word that follows, if one does. 0 if the text is not UTF-8 at *bad.
 */
static size_t long_word(const uint8_t *text, const uint8_t *end, const uint8_t **bad)
{
    const uint8_t *p = text, *before = text;
    uint32_t character;
    unsigned length, class = SPACE;
    for (; p < end; before = p, p += length) {
        unsigned now;
        length = decode(p, end, &character);
        if (!length) {
            *bad = p;
            return 0;
        }
        now = class_of(character);
        if (p == text || (p == text + 1 && *text == ' ' && now != SPACE))
            class = now;
        else if (now != class)
            break;
    }
    return (size_t)((class == SPACE && p < end ? before : p) - text);
}

static int scan_piece(bpe_words *w, const uint8_t *text, const uint8_t *end, const uint8_t *limit, const uint8_t **bad)
{
    uint8_t copy[READABLE];
    while (text < end) {
        size_t left = (size_t)(end - text);
        unsigned n = left < WINDOW ? (unsigned)left : WINDOW, at = 0, bad_at = 0;
        const uint8_t *window = text;
        uint64_t starts;
        masks m;
        if ((size_t)(limit - text) < READABLE) {
            size_t part = left < READABLE ? left : READABLE;
            memset(copy, 0, sizeof copy);
            memcpy(copy, text, part);
            window = copy;
        }
        ascii_masks(window, &m);
        if (m.high & bits_below(n)) {
            if (wide_masks(window, &n, left, &m, &bad_at) != BPE_OK) {
                *bad = text + bad_at;
                return BPE_BAD_UTF8;
            }
        } else
            m.high = 0;
        starts = word_starts(window, &m, n, left) & ~(uint64_t)1;
        if (!starts && left > n) {
            size_t length = long_word(text, end, bad);
            int status = length ? put_word(w, text, length, 1) : BPE_BAD_UTF8;
            if (status != BPE_OK)
                return status;
            text += length;
            continue;
        }
        for (int more = 1; more;) {
            unsigned to, length;
            int status;
            if (starts) {
                to = lowest_bit(starts);
                starts &= starts - 1;
            } else if (left == n) {
                to = n;
                more = 0;
            } else
                break;
            length = to - at;
            if (LIKELY(length <= INLINE_MAX)) {
                uint64_t key[2];
                key[0] = load8(window + at) & w->keep[length][0];
                key[1] = (load8(window + at + 8) & w->keep[length][1]) | w->tag[length];
                status = put_short(w, key[0], key[1], 1);
            } else
                status = put_long(w, window + at, length, 1);
            if (status != BPE_OK)
                return status;
            at = to;
        }
        text += at;
    }
    return BPE_OK;
}

/* the first special token at or behind text, the longest one where several begin; its length, or 0 with *at = end */
static size_t find_special(const bpe_words *w, const uint8_t *text, const uint8_t *end, const uint8_t **at)
{
    for (; w->n_specials && text < end; text++) {
        const uint8_t *special = w->specials;
        if (w->one_start >= 0) {
            text = memchr(text, w->one_start, (size_t)(end - text));
            if (!text)
                break;
        } else if (!w->special_starts[*text])
            continue;
        for (size_t i = 0; i < w->n_specials; special += w->special_lengths[i++])
        {
            size_t length = w->special_lengths[i];
            if (length <= (size_t)(end - text) && text[length - 1] == special[length - 1] && !memcmp(text, special, length)) {
                *at = text;
                return length;
            }
        }
    }
    *at = end;
    return 0;
}

/* count the words of a text; on BPE_BAD_UTF8, *bad_offset is the first byte that is not UTF-8 */
int bpe_words_scan(bpe_words *w, const uint8_t *text, size_t length, size_t *bad_offset)
{
    const uint8_t *end = text + length, *piece = text, *wall, *bad = text;
    while (piece < end) {
        size_t special = find_special(w, piece, end, &wall);
        int status = scan_piece(w, piece, wall, end, &bad);
        if (status != BPE_OK) {
            *bad_offset = (size_t)(bad - text);
            return status;
        }
        piece = wall + special;
    }
    return BPE_OK;
}

/* ---- 2. learning: the structures --------------------------------------------------------------------------------- */

enum { WALL = 0, DEAD = 1, FIRST_ID = 2 }; /* inside, the ids are those outside + 2 */

typedef struct {
    uint64_t key; /* left id << 32 | right id; 0 in an empty slot, since no pair has a wall in it */
    uint64_t count;
    uint32_t *list; /* first slots of the left tokens, ascending */
    size_t n;
} pair_slot;

typedef struct {
    uint64_t key, count;
} heap_entry;

typedef struct {
    uint32_t span, length; /* in slots of the array, in bytes */
    size_t where;          /* of the bytes */
    uint64_t start;        /* the first 8 bytes as a number: decides nearly all comparisons */
} token;

typedef struct { /* of one neighbour, while a merge is made */
    uint64_t count;
    uint32_t *list;
    size_t n;
} neighbour;

typedef struct {
    uint32_t at, left, right;
} replaced_pair;

struct bpe_learner {
    uint32_t *seq;
    size_t n_slots;
    size_t *group_end; /* words of equal count: the slot behind the last of them */
    uint64_t *group_count;
    size_t n_groups, group_end_capacity, group_count_capacity;

    token *tokens;
    size_t n_tokens, token_capacity;
    uint8_t *bytes;
    size_t n_bytes, bytes_capacity;

    pair_slot *pairs;
    size_t pair_capacity, n_pairs; /* a power of two */
    unsigned pair_shift;
    heap_entry *heap;
    size_t n_heap, heap_capacity;
    uint64_t threshold, least;
    int following; /* merges that are given come first, so all pairs are in the table */
    size_t longest;
    int smaller_ids; /* who wins a tie: the greater bytes, or, as in Hugging Face's trainer, the smaller pair of ids */

    neighbour *left, *right; /* by token id; all zero between merges */
    size_t left_capacity, right_capacity;
    uint32_t *lefts, *rights; /* the ids that are not zero */
    size_t lefts_capacity, rights_capacity, n_lefts, n_rights;
    replaced_pair *replaced;
    size_t replaced_capacity;
    size_t work; /* places gone through in this batch */
};

static uint64_t pair_key(uint32_t left, uint32_t right) { return (uint64_t)left << 32 | right; }
static size_t pair_home(const bpe_learner *l, uint64_t key) { return (size_t)(mix(key, key) >> l->pair_shift); }

/* -1, 0, 1: the order of two tokens' bytes */
static int compare_tokens(const bpe_learner *l, uint32_t a, uint32_t b)
{
    const token *x = l->tokens + a, *y = l->tokens + b;
    int order;
    if (a == b)
        return 0;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    order = memcmp(l->bytes + x->where, l->bytes + y->where, x->length < y->length ? x->length : y->length);
    if (!order)
        order = x->length < y->length ? -1 : x->length > y->length;
    return order;
}

/* the rule: the larger count first; then the greater left token, then the greater right one */
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

static void heap_down(bpe_learner *l, size_t i)
{
    heap_entry moving = l->heap[i];
    for (size_t child; (child = 2 * i + 1) < l->n_heap; i = child) {
        if (child + 1 < l->n_heap && is_better(l, l->heap + child + 1, l->heap + child))
            child++;
        if (!is_better(l, l->heap + child, &moving))
            break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = moving;
}

static int heap_push(bpe_learner *l, uint64_t key, uint64_t count)
{
    size_t i = l->n_heap;
    heap_entry entry = {key, count};
    if (grow(&l->heap, &l->heap_capacity, i + 1, sizeof *l->heap) != BPE_OK)
        return BPE_NO_MEMORY;
    l->n_heap++;
    for (; i && is_better(l, &entry, l->heap + (i - 1) / 2); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = entry;
    return BPE_OK;
}

/* ---- 2. learning: the table of pairs ----------------------------------------------------------------------------- */

static pair_slot *find_pair(const bpe_learner *l, uint64_t key)
{
    size_t mask = l->pair_capacity - 1, i = pair_home(l, key);
    while (l->pairs[i].key && l->pairs[i].key != key)
        i = (i + 1) & mask;
    return l->pairs + i;
}

static int resize_pairs(bpe_learner *l, size_t capacity, unsigned shift)
{
    pair_slot *old = l->pairs, *pairs = allocate(capacity, sizeof *pairs, 1);
    size_t old_capacity = l->pair_capacity;
    if (!pairs)
        return BPE_NO_MEMORY;
    l->pairs = pairs;
    l->pair_capacity = capacity;
    l->pair_shift = shift;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].key)
            *find_pair(l, old[i].key) = old[i];
    free(old);
    return BPE_OK;
}

/* the slot of a pair, which is put in with a count of 0 if it is new; NULL without memory */
static pair_slot *put_pair(bpe_learner *l, uint64_t key)
{
    pair_slot *slot = find_pair(l, key);
    if (slot->key)
        return slot;
    if (l->n_pairs + 1 > l->pair_capacity / 2) {
        if (resize_pairs(l, l->pair_capacity * 2, l->pair_shift - 1) != BPE_OK)
            return NULL;
        slot = find_pair(l, key);
    }
    l->n_pairs++;
    slot->key = key;
    return slot;
}

/* take a pair out; the entries behind it move up, so that no search ends early */
static void drop_pair(bpe_learner *l, pair_slot *slot)
{
    size_t mask = l->pair_capacity - 1, hole = (size_t)(slot - l->pairs);
    free(slot->list);
    for (size_t i = (hole + 1) & mask; l->pairs[i].key; i = (i + 1) & mask)
        if (((i - pair_home(l, l->pairs[i].key)) & mask) >= ((i - hole) & mask)) {
            l->pairs[hole] = l->pairs[i];
            hole = i;
        }
    memset(l->pairs + hole, 0, sizeof *slot);
    l->n_pairs--;
}

static void clear_pairs(bpe_learner *l)
{
    for (size_t i = 0; i < l->pair_capacity; i++)
        free(l->pairs[i].list);
    memset(l->pairs, 0, l->pair_capacity * sizeof *l->pairs);
    l->n_pairs = 0;
}

/* the group that a slot lies in, from group g on: steps that double, then halve */
static size_t group_of(const bpe_learner *l, size_t slot, size_t g)
{
    size_t step = 1;
    while (g + step < l->n_groups && slot >= l->group_end[g + step - 1]) {
        g += step;
        step *= 2;
    }
    for (; step; step /= 2)
        if (g + step < l->n_groups && slot >= l->group_end[g + step - 1])
            g += step;
    return g;
}

/*
 * Go through all pairs in the array. Without `fill`, count them; with it, write their places into the lists of those
 * that have one, where slot.n begins at 0.
 */
static int walk_pairs(bpe_learner *l, int fill)
{
    size_t group = 0, span = 1;
    for (size_t p = 1; p < l->n_slots; p += span) {
        uint32_t left = l->seq[p], right;
        pair_slot *slot;
        span = l->tokens[left].span; /* 1 for a wall */
        if (left == WALL || (right = l->seq[p + span]) == WALL)
            continue;
        if (fill) {
            slot = find_pair(l, pair_key(left, right));
            if (slot->key)
                slot->list[slot->n++] = (uint32_t)p;
            continue;
        }
        if (p >= l->group_end[group])
            group = group_of(l, p, group);
        slot = put_pair(l, pair_key(left, right));
        if (!slot)
            return BPE_NO_MEMORY;
        slot->n++;
        if (add_count(&slot->count, l->group_count[group]) != BPE_OK)
            return BPE_OVERFLOW;
    }
    return BPE_OK;
}

static int may_merge(const bpe_learner *l, uint64_t key, uint64_t count)
{
    size_t length = (size_t)l->tokens[key >> 32].length + l->tokens[(uint32_t)key].length;
    return count >= l->threshold && length <= l->longest;
}

/* put a pair into the table, with room for a list of n, and into the heap */
static int add_pair(bpe_learner *l, uint64_t key, uint64_t count, size_t n, uint32_t **list)
{
    pair_slot *slot = put_pair(l, key);
    if (!slot || !(slot->list = malloc(n * sizeof **list)))
        return BPE_NO_MEMORY;
    slot->count = count;
    slot->n = n;
    *list = slot->list;
    return heap_push(l, key, count);
}

/* replace the table by one of all pairs that are in the array now and occur at least threshold times */
static int index_pairs(bpe_learner *l, uint64_t merges_wanted)
{
    pair_slot *all;
    size_t capacity, n = 0;
    unsigned bits = 12;
    uint64_t total = 0;
    int status;
    clear_pairs(l);
    l->n_heap = 0;
    status = walk_pairs(l, 0);
    all = l->pairs;
    capacity = l->pair_capacity;
    for (size_t i = 0; i < capacity; i++)
        total = all[i].count > COUNT_MAX - total ? COUNT_MAX : total + all[i].count;
    if (!l->threshold) /* a guess at how rare the last merge will be; a wrong one costs time only */
        l->threshold = total / 64 / (merges_wanted + 1);
    if (l->threshold < l->least && !l->following)
        l->threshold = l->least;
    for (size_t i = 0; i < capacity; i++)
        n += all[i].key && may_merge(l, all[i].key, all[i].count);
    l->pairs = NULL;
    l->pair_capacity = l->n_pairs = 0;
    /* large enough from the start: they come in the order of their hashes, and would pile up in a table that grows */
    while (bits < 63 && n > ((size_t)1 << bits) / 4)
        bits++;
    if (status == BPE_OK)
        status = resize_pairs(l, (size_t)1 << bits, 64 - bits);
    for (size_t i = 0; i < capacity && status == BPE_OK; i++) {
        uint32_t *list;
        if (all[i].key && may_merge(l, all[i].key, all[i].count))
            status = add_pair(l, all[i].key, all[i].count, all[i].n, &list);
    }
    free(all);
    for (size_t i = 0; i < l->pair_capacity; i++)
        l->pairs[i].n = 0;
    return status == BPE_OK ? walk_pairs(l, 1) : status;
}

/* ---- 2. learning: merges ----------------------------------------------------------------------------------------- */

/* grow a block of neighbours, the new ones all zero */
static int grow_neighbours(neighbour **block, size_t *capacity, size_t needed)
{
    size_t old = *capacity;
    if (grow(block, capacity, needed, sizeof **block) != BPE_OK)
        return BPE_NO_MEMORY;
    memset(*block + old, 0, (*capacity - old) * sizeof **block);
    return BPE_OK;
}

/* make room for one more token of so many bytes, which go to *bytes; nothing is added yet */
static int make_room(bpe_learner *l, size_t length, uint8_t **bytes)
{
    size_t n = l->n_tokens + 1;
    if (n >= UINT32_MAX || length > UINT32_MAX)
        return BPE_OVERFLOW;
    if (grow(&l->tokens, &l->token_capacity, n, sizeof *l->tokens) != BPE_OK ||
        grow(&l->bytes, &l->bytes_capacity, l->n_bytes + length, 1) != BPE_OK ||
        grow(&l->lefts, &l->lefts_capacity, n, sizeof *l->lefts) != BPE_OK ||
        grow(&l->rights, &l->rights_capacity, n, sizeof *l->rights) != BPE_OK ||
        grow_neighbours(&l->left, &l->left_capacity, n) != BPE_OK ||
        grow_neighbours(&l->right, &l->right_capacity, n) != BPE_OK)
        return BPE_NO_MEMORY;
    *bytes = l->bytes + l->n_bytes;
    return BPE_OK;
}

/* add the token whose bytes were put where make_room said */
static void add_token(bpe_learner *l, size_t length, size_t span)
{
    token *t = l->tokens + l->n_tokens++;
    t->span = (uint32_t)span;
    t->length = (uint32_t)length;
    t->where = l->n_bytes;
    t->start = 0;
    for (size_t i = 0; i < 8; i++)
        t->start = t->start << 8 | (i < length ? l->bytes[l->n_bytes + i] : 0u);
    l->n_bytes += length;
}

static int add_merged_token(bpe_learner *l, uint32_t a, uint32_t b)
{
    size_t length = (size_t)l->tokens[a].length + l->tokens[b].length;
    uint8_t *bytes;
    int status = make_room(l, length, &bytes);
    if (status != BPE_OK)
        return status;
    memcpy(bytes, l->bytes + l->tokens[a].where, l->tokens[a].length);
    memcpy(bytes + l->tokens[a].length, l->bytes + l->tokens[b].where, l->tokens[b].length);
    add_token(l, length, (size_t)l->tokens[a].span + l->tokens[b].span);
    return BPE_OK;
}

/* the best pair, in *best; NULL there if none is left */
static int best_pair(bpe_learner *l, uint64_t merges_wanted, pair_slot **best)
{
    for (;;) {
        heap_entry *top = l->heap;
        pair_slot *slot;
        if (!l->n_heap) {
            int status;
            *best = NULL;
            if (l->threshold == l->least)
                return BPE_OK;
            l->threshold = l->threshold / 8 > l->least ? l->threshold / 8 : l->least;
            status = index_pairs(l, merges_wanted);
            if (status != BPE_OK)
                return status;
            continue;
        }
        slot = find_pair(l, top->key);
        if (slot->key && slot->count < top->count) { /* it fell since it was put in */
            top->count = slot->count;
            heap_down(l, 0);
            continue;
        }
        *top = l->heap[--l->n_heap];
        if (l->n_heap)
            heap_down(l, 0);
        if (slot->key) {
            *best = slot;
            return BPE_OK;
        }
    }
}

/*
 * Write c over the pairs (a, b) in the list: -> how many, weighted by the counts of their words, in *weight. The places
 * and their neighbours go to l->replaced, the sums for each neighbour to l->left and l->right.
 */
static size_t replace_pairs(bpe_learner *l, const uint32_t *list, size_t n, uint32_t a, uint32_t b, uint32_t c,
                            uint64_t *weight)
{
    uint32_t *seq = l->seq;
    const size_t span_a = l->tokens[a].span, span = span_a + l->tokens[b].span;
    size_t group = 0, made = 0;
    l->n_lefts = l->n_rights = 0;
    *weight = 0;
    for (size_t i = 0; i < n; i++) {
        size_t p = list[i];
        uint32_t x, y;
        uint64_t count;
        if (i + 16 < n)
            PREFETCH(seq + list[i + 16]);
        if (seq[p] != a || seq[p + span_a] != b)
            continue;
        if (p >= l->group_end[group])
            group = group_of(l, p, group);
        count = l->group_count[group];
        x = seq[p - 1];
        y = seq[p + span];
        seq[p + span_a - 1] = seq[p + span_a] = DEAD;
        seq[p] = seq[p + span - 1] = c;
        if (!l->left[x].n++)
            l->lefts[l->n_lefts++] = x;
        if (!l->right[y].n++)
            l->rights[l->n_rights++] = y;
        l->left[x].count += count;
        l->right[y].count += count;
        *weight += count;
        l->replaced[made].at = (uint32_t)p;
        l->replaced[made].left = x;
        l->replaced[made++].right = y;
    }
    return made;
}

static void lower_pair(bpe_learner *l, uint32_t left, uint32_t right, uint64_t count)
{
    pair_slot *slot = find_pair(l, pair_key(left, right));
    if (!slot->key)
        return; /* it was too rare already */
    slot->count -= count;
    if (slot->count < l->threshold)
        drop_pair(l, slot);
}

static int raise_pair(bpe_learner *l, uint32_t left, uint32_t right, neighbour *sum)
{
    uint64_t key = pair_key(left, right);
    if (left == WALL || right == WALL || !may_merge(l, key, sum->count))
        return BPE_OK;
    return add_pair(l, key, sum->count, sum->n, &sum->list);
}

/* bring the table up to date after (a, b) became c in `made` places */
static int update_pairs(bpe_learner *l, uint32_t a, uint32_t b, uint32_t c, size_t made)
{
    int status = BPE_OK;
    for (size_t i = 0; i < l->n_rights; i++) {
        if (i + 4 < l->n_rights)
            PREFETCH(l->pairs + pair_home(l, pair_key(b, l->rights[i + 4])));
        lower_pair(l, b, l->rights[i], l->right[l->rights[i]].count);
    }
    for (size_t i = 0; i < l->n_lefts; i++) {
        uint32_t x = l->lefts[i];
        if (i + 4 < l->n_lefts)
            PREFETCH(l->pairs + pair_home(l, pair_key(l->lefts[i + 4], a)));
        if (x == c) /* c beside c: the left one saw an (a, b) on its right, and counted (c, a) */
            l->right[a].count -= l->left[c].count;
        else
            lower_pair(l, x, a, l->left[x].count);
    }
    for (size_t i = 0; i < l->n_rights && status == BPE_OK; i++)
        status = raise_pair(l, c, l->rights[i], l->right + l->rights[i]);
    for (size_t i = 0; i < l->n_lefts && status == BPE_OK; i++)
        status = raise_pair(l, l->lefts[i], c, l->left + l->lefts[i]);
    for (size_t i = 0; i < made && status == BPE_OK; i++) {
        const replaced_pair *r = l->replaced + i;
        if (l->right[r->right].list)
            *l->right[r->right].list++ = r->at;
        if (l->left[r->left].list)
            *l->left[r->left].list++ = r->at - l->tokens[r->left].span;
    }
    for (size_t i = 0; i < l->n_rights; i++)
        memset(l->right + l->rights[i], 0, sizeof *l->right);
    for (size_t i = 0; i < l->n_lefts; i++)
        memset(l->left + l->lefts[i], 0, sizeof *l->left);
    return status;
}

/* merge the pair in a slot of the table, which goes; what was merged goes to *merge */
static int make_merge(bpe_learner *l, pair_slot *slot, bpe_merge *merge)
{
    uint32_t a = (uint32_t)(slot->key >> 32), b = (uint32_t)slot->key, c = (uint32_t)l->n_tokens, *list = slot->list;
    size_t n = slot->n;
    int status;
    merge->left = a - FIRST_ID;
    merge->right = b - FIRST_ID;
    merge->count = slot->count;
    slot->list = NULL;
    drop_pair(l, slot);
    status = add_merged_token(l, a, b);
    if (status == BPE_OK)
        status = grow(&l->replaced, &l->replaced_capacity, n, sizeof *l->replaced);
    if (status == BPE_OK)
        status = update_pairs(l, a, b, c, replace_pairs(l, list, n, a, b, c, &merge->replaced));
    free(list);
    l->work += n;
    return status;
}

/*
 * Make up to `most` merges: -> how many in *made, 0 when no pair is left that may be merged. It comes back earlier after
 * some millions of replacements, so that the caller can show progress and hear Ctrl-C.
 */
int bpe_learner_run(bpe_learner *l, bpe_merge *merges, size_t most, size_t *made)
{
    l->work = 0;
    for (*made = 0; *made < most && l->work < 4000000; ++*made) {
        pair_slot *best;
        int status = best_pair(l, most, &best);
        if (status == BPE_OK && best)
            status = make_merge(l, best, merges + *made);
        if (status != BPE_OK || !best)
            return status;
    }
    return BPE_OK;
}

/*
 * Make one merge that is given, however often its pair occurs. It needs an index of all pairs, so bpe_learner_new makes
 * one when merges will be given; after the last of them, bpe_learner_followed makes the usual one.
 */
int bpe_learner_follow(bpe_learner *l, uint32_t left, uint32_t right, bpe_merge *merge)
{
    pair_slot *slot;
    if (left + FIRST_ID >= l->n_tokens || right + FIRST_ID >= l->n_tokens)
        return BPE_OVERFLOW;
    merge->left = left;
    merge->right = right;
    merge->count = merge->replaced = 0;
    slot = find_pair(l, pair_key(left + FIRST_ID, right + FIRST_ID));
    if (slot->key)
        return make_merge(l, slot, merge);
    return add_merged_token(l, left + FIRST_ID, right + FIRST_ID);
}

int bpe_learner_followed(bpe_learner *l, uint64_t merges_wanted, size_t max_token_length)
{
    l->following = 0;
    l->threshold = 0;
    l->longest = max_token_length;
    return index_pairs(l, merges_wanted);
}

/* ---- 2. learning: from words to the array ------------------------------------------------------------------------ */

enum { SMALL = 1024 }; /* words with a count up to this are sorted by counting */

typedef struct {
    uint64_t count;
    size_t slot;
} frequent_word;

static int by_falling_count(const void *x, const void *y)
{
    uint64_t a = ((const frequent_word *)x)->count, b = ((const frequent_word *)y)->count;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* write a word and a wall behind it from *at on */
static void write_word(bpe_learner *l, const bpe_words *w, size_t slot, const uint32_t *id_of_byte, size_t *at)
{
    size_t length;
    const uint8_t *word = slot_word(w, w->slots + slot, &length);
    for (size_t i = 0; id_of_byte && i < length; i++)
        l->seq[(*at)++] = id_of_byte[word[i]] + FIRST_ID;
    for (size_t i = 0; !id_of_byte && i < length; i += 4) {
        uint32_t id;
        memcpy(&id, word + i, 4);
        l->seq[(*at)++] = id + FIRST_ID;
    }
    l->seq[(*at)++] = WALL;
}

static int add_group(bpe_learner *l, uint64_t count, size_t end)
{
    if (l->n_groups && l->group_count[l->n_groups - 1] == count) {
        l->group_end[l->n_groups - 1] = end;
        return BPE_OK;
    }
    if (grow(&l->group_end, &l->group_end_capacity, l->n_groups + 1, sizeof *l->group_end) != BPE_OK ||
        grow(&l->group_count, &l->group_count_capacity, l->n_groups + 1, sizeof *l->group_count) != BPE_OK)
        return BPE_NO_MEMORY;
    l->group_end[l->n_groups] = end;
    l->group_count[l->n_groups++] = count;
    return BPE_OK;
}

/* all words of two bytes or more, by falling count; the frequent ones are sorted, the others each have a place to go */
static int write_words(bpe_learner *l, const bpe_words *w, const uint32_t *id_of_byte)
{
    size_t room[SMALL + 1] = {0}, n_frequent = 0, n = 1, at = 1, width = id_of_byte ? 1 : 4;
    frequent_word *frequent;
    int status = BPE_OK;
    for (size_t i = 0; i < w->capacity; i++) {
        size_t length;
        if (!w->slots[i].count)
            continue;
        (void)slot_word(w, w->slots + i, &length);
        n += length / width + 1;
        if (w->slots[i].count <= SMALL)
            room[w->slots[i].count] += length / width + 1;
        else
            n_frequent++;
    }
    if (n >= UINT32_MAX)
        return BPE_OVERFLOW;
    l->seq = allocate(n, sizeof *l->seq, 0);
    frequent = allocate(n_frequent, sizeof *frequent, 0);
    if (!l->seq || !frequent) {
        free(frequent);
        return BPE_NO_MEMORY;
    }
    l->n_slots = n;
    l->seq[0] = WALL;
    for (size_t i = 0, k = 0; i < w->capacity; i++)
        if (w->slots[i].count > SMALL) {
            frequent[k].count = w->slots[i].count;
            frequent[k++].slot = i;
        }
    qsort(frequent, n_frequent, sizeof *frequent, by_falling_count);
    for (size_t i = 0; i < n_frequent && status == BPE_OK; i++) {
        write_word(l, w, frequent[i].slot, id_of_byte, &at);
        status = add_group(l, frequent[i].count, at);
    }
    free(frequent);
    for (size_t count = SMALL; count && status == BPE_OK; count--) {
        size_t size = room[count];
        room[count] = at;
        at += size;
        if (size)
            status = add_group(l, count, at);
    }
    for (size_t i = 0; i < w->capacity && status == BPE_OK; i++)
        if (w->slots[i].count && w->slots[i].count <= SMALL)
            write_word(l, w, i, id_of_byte, &room[w->slots[i].count]);
    return status;
}

void bpe_learner_free(bpe_learner *l)
{
    if (!l)
        return;
    if (l->pairs)
        clear_pairs(l);
    free(l->pairs);
    free(l->seq);
    free(l->group_end);
    free(l->group_count);
    free(l->tokens);
    free(l->bytes);
    free(l->heap);
    free(l->left);
    free(l->right);
    free(l->lefts);
    free(l->rights);
    free(l->replaced);
    free(l);
}

/*
 * Take over all words of a table, which is empty afterwards. tokens are the first n_tokens of the vocabulary, one after
 * the other, by id; id_of_byte is the id of each byte's token, or NULL if the words are rows of uint32_t ids themselves. merges_wanted is about how many merges will be asked for.
 * smaller_ids is 1 for the tie rule of Hugging Face's trainer; follow is 1 if the first merges will be given. min_frequency
 * is at least 1.
 */
int bpe_learner_new(bpe_words *w, const uint32_t *id_of_byte, const uint8_t *tokens, const size_t *lengths,
                    size_t n_tokens, uint64_t merges_wanted, uint64_t min_frequency, size_t max_token_length,
                    int smaller_ids, int follow, bpe_learner **learner)
{
    bpe_learner *l = *learner = calloc(1, sizeof *l);
    int status = l ? resize_pairs(l, (size_t)1 << 12, 64 - 12) : BPE_NO_MEMORY;
    for (size_t i = 0; i < n_tokens + FIRST_ID && status == BPE_OK; i++) {
        size_t length = i < FIRST_ID ? 0 : lengths[i - FIRST_ID];
        uint8_t *bytes;
        status = make_room(l, length, &bytes);
        if (status != BPE_OK)
            break;
        if (length)
            memcpy(bytes, tokens, length);
        tokens += length;
        add_token(l, length, 1);
    }
    if (status == BPE_OK) {
        l->least = min_frequency;
        l->following = follow;
        l->threshold = (uint64_t)follow; /* with merges to follow: all pairs, from a count of 1 on */
        l->longest = follow ? SIZE_MAX : max_token_length;
        l->smaller_ids = smaller_ids;
        status = write_words(l, w, id_of_byte);
    }
    free(w->slots);
    free(w->arena);
    w->slots = NULL;
    w->arena = NULL;
    w->capacity = w->used = w->arena_size = w->arena_capacity = 0;
    if (status == BPE_OK)
        status = index_pairs(l, merges_wanted);
    if (status != BPE_OK) {
        bpe_learner_free(l);
        *learner = NULL;
    }
    return status;
}
