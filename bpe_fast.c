/*
 * bpe_fast.c: the same answer as bpe.py, as fast as the machine allows.
 *
 * The Python engine in bpe.py is the definition; read it first. This file counts words, learns merges and encodes text.
 * build_ffi.py puts two things in front of it: the prototypes of its public functions, with the return codes and the
 * structures that Python sees, and the table of character classes, made from the installed regex package.
 *
 * THE HANDLES
 *
 *   bpe_words    distinct words and how often each occurs: the result of scanning text, or of a list from Python
 *   bpe_learner  takes the words over, and hands out merges, a batch at a time
 *   bpe_encoder  vocabulary, merges, special tokens, pattern; never changes, so threads may share one
 *   bpe_memory   the ids of words that an encoder has seen; each thread has one of its own
 *
 * No global changes, so different threads may use different handles. Nothing here prints or exits.
 *
 * RETURN CODES
 *
 *   BPE_OK          done
 *   BPE_NO_MEMORY   an allocation failed; the handle can only be freed
 *   BPE_BAD_UTF8    text that is not UTF-8; the offset of the first bad byte is handed out
 *   BPE_NO_TOKEN    a byte that the vocabulary has no token for; its offset is handed out
 *   BPE_OVERFLOW    a count above 2^63 - 1, 2^32 or more bytes in a word, distinct words or tokens, an unknown id
 *   BPE_USED_UP     the table of words has gone into a learner: it has totals of 0, and can only be freed
 *
 * PART 1, WORDS. An open-addressing table; a slot is 24 bytes and holds words of up to 15 bytes in place:
 *
 *     slot.key    n e w e s t . . | . . . . . . . 6     the bytes, zeros, and the length in the last byte
 *     slot.key    hash, 8 bytes   | where, 7 b.   255   a longer word: its bytes lie in the arena, length first
 *     slot.count  6                                     0: the slot is empty
 *
 * The hash has a secret seed, so nobody can build words that collide. What leaves the table is sorted, by falling count
 * and then by bytes: neither seed nor hash can be seen in a result.
 *
 * A window of 64 bytes that begins with a word is classified at once, a bit for each byte: letter, number, whitespace.
 * Shifts and ands of these masks give the bits at which words begin; the next window begins with the last of them, so
 * nothing is carried from one window to the next. What masks don't settle, walk_word reads character by character:
 * words longer than a window, and, in o200k, marks behind other characters and upper case behind letters of both cases.
 * GPT-2's alone: gpt2_starts; contractions in lower case only; numbers of any length; only U+0020 goes along with what
 * follows; line ends are whitespace like any other. The other two share modern_starts.
 * To add a pattern to the three (bpe.py has them as expressions):
 *   1. put its name into bpe_pattern (build_ffi.py), and a class that it alone knows into CLASSES and the enum below;
 *   2. say in walk_word what its words are, character by character: that is enough for a scanner that is right;
 *   3. let find_starts set *n and `starts` to 0 for it, so that each word is walk_word's, and test that;
 *   4. add the masks it needs to ascii_masks and wide_masks, and a function beside gpt2_starts that finds all starts
 *      below *n, for any text behind it; what that can't do, it leaves to walk_word by a smaller *n;
 *   5. put its traps, and an alphabet with all of its classes, into the tests, which compare with regex.
 *
 * PART 2, LEARNING. All distinct words lie one after the other in one array, the frequent ones first, one slot for each
 * byte (or other first symbol), with walls between them. A token's id stands in its first and in its last slot:
 *
 *     bytes      n e w e s t           after  e+st -> est:     seq   # n e w est dead est # ...
 *     seq      # n e w e s t # ...            (st before it)             |        |
 *                                                                   first slot  last slot
 *
 * so the neighbours of a token at p are seq[p - 1] and seq[p + span], without links. The index of a pair is a rising
 * list of first slots. An entry is stale, and skipped, if the two ids no longer stand there; DEAD marks slots inside a
 * token. Words of equal count lie together, so walking forward through these groups finds the count of a position.
 *
 * A merge (a, b) -> c goes through its list once and adds up, for each neighbour x on the left and y on the right, how
 * much the pairs (x, a), (b, y) lose and (x, c), (c, y) gain; then it touches the table of pairs once for each distinct
 * neighbour. Where c comes to stand beside c, the left one had an a on its right, and counted (c, a): that is taken off
 * again before anything is put into the table.
 *
 * Counts only fall, so a pair that is too rare to be merged soon need not be known now: only pairs with a count of at
 * least `threshold` are in the table, with their lists. When they run out, the threshold goes down and the table is
 * built anew from the array. The heap holds a stale count at worst, never one that is too small.
 *
 * PART 3, ENCODING. Merge the pair of lowest rank, the leftmost of equal ones, until no pair has a rank. Each distinct
 * word is merged once; then the memory has it, in a slot of 32 bytes with up to three ids:
 *
 *     slot.key    n e w e s t . . | . . . . . . . 6     as in Part 1; of a longer word, its hash and its length
 *     slot.ids    n = 2:  new est .                     more ids, and the bytes of longer words, lie in the arena
 *
 * The ranks of all pairs lie in a table that is small enough for the cache. A look-up costs more than anything else, so
 * the bytes of a character become its token at once where that is safe (see number_tokens). In a word of up to 62
 * tokens, comparing all ranks finds the least, while the look-ups of new pairs are under way.
 *
 * COST  counting: a few nanoseconds a word. Learning: one pass over the array for each threshold, and for each merge
 *       its list and its distinct neighbours. Encoding: a known word costs as much as counting it, a new one 30 ns a
 *       merge.
 * MEMORY  words: 24 bytes a slot, 1/3 to 2/3 full (small tables 1/6), and the bytes of long words; a list of them 32 to
 *       64 bytes a word while it is made. Learner: 4 bytes for each byte of distinct words, and for each position in a
 *       list. Encoder: 30 bytes a merge and 512 KB. Memory: up to 32 MB.
 */

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define COUNT_MAX ((uint64_t)INT64_MAX)
#define WINDOW 64
#define READABLE 80 /* a window, and 16 bytes from any place in it */
#define INLINE_MAX 15
#define LONG_WORD 255
#define SCRAMBLE 0x9E3779B97F4A7C15u /* a factor for hashes of what nobody chooses */
#define LARGE_TEXT ((size_t)2 << 20) /* bytes from which on a text gets a table that need not grow so often */
#define LARGE_TABLE ((size_t)1 << 18) /* slots */
#define AHEAD 48 /* how many places ahead memory is asked for */
#ifndef HUGE_FROM
#define HUGE_FROM ((size_t)2 << 20) /* bytes from which on a block gets huge pages */
#endif

/* ---- small things ------------------------------------------------------------------------------------------------ */

#if defined(__GNUC__)
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
static inline unsigned lowest_bit(uint64_t x) { return x & 1 ? 0 : 1 + lowest_bit(x >> 1); }
static inline unsigned highest_bit(uint64_t x) { return x > 1 ? 1 + highest_bit(x >> 1) : 0; }
#endif

static inline uint64_t load8(const void *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

/* a number whose first byte in memory is its lowest on any machine, or back */
static inline uint64_t little(uint64_t x)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static inline uint64_t bits_below(unsigned n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

/* the two halves of the product, one over the other: for hashes whose seed nobody knows */
static inline uint64_t fold(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__)
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

/* the first 8 bytes as a number, which is the smaller the earlier they come in order; zeros behind a shorter one */
static inline uint64_t first_bytes(const uint8_t *bytes, size_t length)
{
    uint64_t start = 0;
    for (size_t i = 0; i < 8; i++)
        start = start << 8 | (i < length ? bytes[i] : 0u);
    return start;
}

/* the order of two strings of bytes: below 0, 0, above 0 */
static int compare_bytes(const uint8_t *a, size_t length_a, const uint8_t *b, size_t length_b)
{
    int order = memcmp(a, b, length_a < length_b ? length_a : length_b);
    return order ? order : (length_a > length_b) - (length_a < length_b);
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
    memcpy(&block, block_address, sizeof block);
    if (wanted > SIZE_MAX / 2 / size || !(block = realloc(block, wanted * size)))
        return BPE_NO_MEMORY;
    memcpy(block_address, &block, sizeof block);
    *capacity = wanted;
    return BPE_OK;
}

/* ---- 1. words: special tokens ------------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *bytes;
    size_t length, index; /* index: the place among those that were given */
    uint32_t shorter;     /* 1 + the place in the list of the longest other one that this one begins with, or 0 */
} special_token;

typedef struct {
    uint8_t *bytes;       /* of all, one after the other */
    special_token *list;  /* in the order of their bytes */
    size_t n;
    uint32_t bucket[257]; /* for each byte, where in the list those that begin with it begin */
    int one_start;        /* the first byte, if there is only one; else -1 */
} specials;

static int by_spelling(const void *x, const void *y)
{
    const special_token *a = x, *b = y;
    return compare_bytes(a->bytes, a->length, b->bytes, b->length);
}

/* 1 + the place of the longest one that text begins with, if `place` of them are not greater than text; or 0 */
static uint32_t longest_start(const special_token *list, uint32_t place, const uint8_t *text, size_t length)
{
    while (place && (list[place - 1].length > length || memcmp(list[place - 1].bytes, text, list[place - 1].length)))
        place = list[place - 1].shorter;
    return place;
}

static void specials_free(specials *s)
{
    if (!s)
        return;
    free(s->bytes);
    free(s->list);
    free(s);
}

/* n special tokens, one after the other, none empty; NULL without memory */
static specials *specials_new(const uint8_t *bytes, const size_t *lengths, size_t n)
{
    specials *s = calloc(1, sizeof *s);
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += lengths[i];
    if (!s || n >= UINT32_MAX || !(s->bytes = allocate(total, 1, 0)) || !(s->list = allocate(n, sizeof *s->list, 0))) {
        specials_free(s);
        return NULL;
    }
    if (total)
        memcpy(s->bytes, bytes, total);
    for (total = 0; s->n < n; total += lengths[s->n++]) {
        special_token *one = s->list + s->n;
        one->bytes = s->bytes + total;
        one->length = lengths[s->n];
        one->index = s->n;
        s->one_start = !s->n || s->one_start == *one->bytes ? *one->bytes : -1;
    }
    qsort(s->list, n, sizeof *s->list, by_spelling);
    for (uint32_t i = 0; i < n; i++) {
        s->list[i].shorter = longest_start(s->list, i, s->list[i].bytes, s->list[i].length);
        s->bucket[*s->list[i].bytes + 1] = i + 1;
    }
    for (unsigned i = 1; i <= 256; i++)
        if (!s->bucket[i])
            s->bucket[i] = s->bucket[i - 1];
    return s;
}

/* the next place where a special token may begin; end if there is none */
static const uint8_t *next_start(const specials *s, const uint8_t *text, const uint8_t *end)
{
    if (s->one_start >= 0) {
        text = memchr(text, s->one_start, (size_t)(end - text));
        return text ? text : end;
    }
    while (text < end && s->bucket[*text] == s->bucket[*text + 1])
        text++;
    return text;
}

/*
 * The first special token at or behind text, and of those that begin there the longest: its length, its place in *at,
 * and its index in *which. 0 if there is none, with *at = end.
 */
static size_t find_special(const specials *s, const uint8_t *text, const uint8_t *end, const uint8_t **at,
                           size_t *which)
{
    for (; s->n && (text = next_start(s, text, end)) < end; text++) {
        size_t left = (size_t)(end - text);
        uint32_t low = s->bucket[*text], high = s->bucket[*text + 1];
        while (low < high) { /* how many are not greater than text? */
            uint32_t middle = low + (high - low) / 2;
            const special_token *one = s->list + middle;
            if (compare_bytes(one->bytes, one->length, text, left) > 0)
                high = middle;
            else
                low = middle + 1;
        }
        low = longest_start(s->list, low, text, left);
        if (low) {
            *at = text;
            *which = s->list[low - 1].index;
            return s->list[low - 1].length;
        }
    }
    *at = end;
    return 0;
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
    uint64_t seed[3];      /* of the hash: nobody can build words that collide without it */
    uint8_t *arena;        /* of long words: 8 bytes of length, then the word */
    size_t arena_size, arena_capacity;
    int pattern;
    specials *specials;
};

/* the key of a word of up to INLINE_MAX bytes, from the 16 bytes that begin with it */
static inline void short_key(const uint8_t *word, size_t length, uint64_t key[2])
{
    static const uint8_t keep[32] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    key[0] = load8(word) & load8(keep + 16 - length);
    key[1] = (load8(word + 8) & load8(keep + 24 - length)) | little((uint64_t)length << 56);
}

static inline uint64_t hash_short(const bpe_words *w, uint64_t key0, uint64_t key1)
{
    return fold(fold(key0 ^ w->seed[0], key1 ^ w->seed[1]), w->seed[2]);
}

static uint64_t hash_long(const bpe_words *w, const uint8_t *word, size_t length)
{
    uint64_t h = w->seed[0] ^ length, last = 0;
    for (; length >= 8; word += 8, length -= 8)
        h = fold(h ^ load8(word), w->seed[1]);
    memcpy(&last, word, length);
    return fold(fold(h ^ last, w->seed[1]), w->seed[2]);
}

static int is_long(const word_slot *slot) { return ((const uint8_t *)slot->key)[15] == LONG_WORD; }

static size_t long_where(const word_slot *slot) { return (size_t)(little(slot->key[1]) & bits_below(56)); }

/* ask for the bytes of a long word in time */
static inline void prefetch_word(const bpe_words *w, size_t i)
{
    if (i < w->capacity && w->slots[i].count && is_long(w->slots + i))
        PREFETCH(w->arena + long_where(w->slots + i));
}

/* the bytes and the length of the word in a slot */
static const uint8_t *slot_word(const bpe_words *w, const word_slot *slot, size_t *length)
{
    const uint8_t *bytes = (const uint8_t *)slot->key;
    uint64_t long_length;
    if (!is_long(slot)) {
        *length = bytes[15];
        return bytes;
    }
    bytes = w->arena + long_where(slot);
    memcpy(&long_length, bytes, 8);
    *length = (size_t)long_length;
    return bytes + 8;
}

static int table_grow(bpe_words *w, size_t capacity)
{
    word_slot *slots = allocate(capacity, sizeof *slots, 1);
    unsigned shift = 64 - highest_bit(capacity);
    if (!slots)
        return BPE_NO_MEMORY;
    for (size_t i = 0; i < w->capacity; i++) {
        const word_slot *slot = w->slots + i;
        uint64_t hash = is_long(slot) ? slot->key[0] : hash_short(w, slot->key[0], slot->key[1]);
        size_t j = (size_t)(hash >> shift);
        while (slot->count && slots[j].count)
            j = (j + 1) & (capacity - 1);
        if (slot->count)
            slots[j] = *slot;
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
    if (++w->used <= w->capacity / 3 * 2)
        return BPE_OK;
    return table_grow(w, w->capacity * (w->capacity < LARGE_TABLE ? 4 : 2)); /* new memory costs more than words do */
}

ALWAYS_INLINE int put_short(bpe_words *w, uint64_t key0, uint64_t key1, uint64_t count)
{
    size_t mask = w->capacity - 1, i = (size_t)(hash_short(w, key0, key1) >> w->shift);
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
    uint64_t hash = hash_long(w, word, length), length8 = length;
    size_t i = (size_t)(hash >> w->shift), where = w->arena_size, other_length;
    for (; w->slots[i].count; i = (i + 1) & (w->capacity - 1)) {
        word_slot *slot = w->slots + i;
        const uint8_t *other;
        if (slot->key[0] != hash || !is_long(slot))
            continue;
        other = slot_word(w, slot, &other_length);
        if (other_length == length && !memcmp(other, word, length))
            return add_count(&slot->count, count);
    }
    if (length > UINT32_MAX)
        return BPE_OVERFLOW;
    if (grow(&w->arena, &w->arena_capacity, where + 8 + length, 1) != BPE_OK)
        return BPE_NO_MEMORY;
    memcpy(w->arena + where, &length8, 8);
    memcpy(w->arena + where + 8, word, length);
    w->arena_size = where + 8 + length;
    return slot_fill(w, w->slots + i, hash, little((uint64_t)LONG_WORD << 56 | where), count);
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
    specials_free(w->specials);
    free(w);
}

/* an empty table, for text with these special tokens (none empty); NULL without memory. The seed should be a secret. */
bpe_words *bpe_words_new(const uint8_t *special_bytes, const size_t *lengths, size_t n, int pattern,
                         uint64_t seed)
{
    bpe_words *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    for (unsigned i = 0; i < 3; i++)
        w->seed[i] = seed = fold(seed ^ SCRAMBLE, SCRAMBLE * (i + 2) ^ seed) | 1;
    w->specials = specials_new(special_bytes, lengths, n);
    if (!w->specials || table_grow(w, 1 << 12) != BPE_OK) {
        bpe_words_free(w);
        return NULL;
    }
    w->pattern = pattern;
    return w;
}

/* add n words and their counts; the words lie one after the other */
int bpe_words_put(bpe_words *w, const uint8_t *bytes, const uint32_t *lengths, const uint64_t *counts, size_t n)
{
    if (!w->slots)
        return BPE_USED_UP;
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
    if (!w->slots || !other->slots)
        return BPE_USED_UP;
    if (w->capacity < other->capacity && table_grow(w, other->capacity) != BPE_OK)
        return BPE_NO_MEMORY; /* words come in the order of their hashes, and would pile up in a smaller table */
    for (size_t i = 0; i < other->capacity; i++) {
        const word_slot *slot = other->slots + i;
        const uint8_t *word;
        size_t length;
        int status;
        prefetch_word(other, i + AHEAD);
        if (!slot->count)
            continue;
        word = slot_word(other, slot, &length);
        status = put_word(w, word, length, slot->count);
        if (status != BPE_OK)
            return status;
    }
    return BPE_OK;
}

/* add count * length, with a length below 2^32, to a sum of 128 bits */
static void add_product(uint64_t *low, uint64_t *high, uint64_t count, uint64_t length)
{
    uint64_t upper = (count >> 32) * length, lower = (count & UINT32_MAX) * length;
    *low += upper << 32;
    *high += (upper >> 32) + (*low < upper << 32);
    *low += lower;
    *high += *low < lower;
}

/* how many distinct words, their bytes, all their occurrences, and the bytes of these: the last two may pass 2^64 */
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
        add_product(&totals->pretokens, &totals->pretokens_high, w->slots[i].count, 1);
        add_product(&totals->bytes_in_words, &totals->bytes_in_words_high, w->slots[i].count, length);
    }
}

typedef struct {
    uint64_t key[2]; /* first bytes as a number, or slot; what the count lacks to the largest: both sort upwards */
    const uint8_t *word;
    size_t length;
} listed_word;

static int by_count(const void *x, const void *y)
{
    const listed_word *a = x, *b = y;
    if (a->key[1] != b->key[1])
        return a->key[1] < b->key[1] ? -1 : 1;
    if (a->key[0] != b->key[0])
        return a->key[0] < b->key[0] ? -1 : 1;
    return compare_bytes(a->word, a->length, b->word, b->length);
}

/* all words by falling count and, if asked, those of equal count by their bytes; NULL without memory */
static listed_word *list_words(const bpe_words *w, int bytes_too)
{
    listed_word *list = allocate(w->used, sizeof *list, 0), *entry = list;
    for (size_t i = 0; list && i < w->capacity; i++) {
        prefetch_word(w, i + AHEAD);
        if (!w->slots[i].count)
            continue;
        entry->word = slot_word(w, w->slots + i, &entry->length);
        entry->key[0] = bytes_too ? first_bytes(entry->word, entry->length) : i;
        entry->key[1] = COUNT_MAX - w->slots[i].count;
        entry++;
    }
    if (list)
        qsort(list, w->used, sizeof *list, by_count);
    return list;
}

/*
 * All words, one after the other, with their lengths and counts, into blocks that are as large as the totals say. The
 * frequent ones come first, those of equal count by their bytes, so that the hash is nowhere to be seen.
 */
int bpe_words_get(const bpe_words *w, uint8_t *bytes, uint32_t *lengths, uint64_t *counts)
{
    listed_word *list = w->slots ? list_words(w, 1) : NULL;
    if (!list)
        return w->slots ? BPE_NO_MEMORY : BPE_USED_UP;
    for (size_t i = 0; i < w->used; i++) {
        memcpy(bytes, list[i].word, list[i].length);
        bytes += list[i].length;
        lengths[i] = (uint32_t)list[i].length;
        counts[i] = COUNT_MAX - list[i].key[1];
    }
    free(list);
    return BPE_OK;
}

/* ---- 1. words: scanning text ------------------------------------------------------------------------------------- */

/* the classes in bpe_class_blocks, and sets of them; NONE stands for the end of the text */
enum { OTHER, UPPER, LOWER, BOTH, MARK, NUMBER, SPACE, LINE_END, NONE };
#define SET(class) (1u << (class))
#define LETTERS (SET(UPPER) | SET(LOWER) | SET(BOTH))
#define SPACES (SET(SPACE) | SET(LINE_END))

typedef struct { /* a bit a byte; blank is U+0020, tail any byte of a character but its first */
    uint64_t high, letter, number, space, blank, quote, tail, line_end, upper, lower, both, mark, slash;
} masks;

/*
 * The bytes of the window at p that are first to first + n - 1 with some bits set; the range is on one side of 128.
 */
#if defined(__AVX2__)
static inline uint64_t in_range(const uint8_t *p, unsigned with, unsigned first, unsigned n)
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
#else
static inline uint64_t in_range(const uint8_t *p, unsigned with, unsigned first, unsigned n)
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

static inline void ascii_masks(int pattern, const uint8_t *w, masks *m)
{
    m->high = in_range(w, 0, 0x80, 128);
    m->letter = in_range(w, 0x20, 'a', 26); /* in both cases */
    m->number = in_range(w, 0, '0', 10);
    m->blank = in_range(w, 0, ' ', 1);
    m->space = m->blank | in_range(w, 0, '\t', 5);
    m->quote = in_range(w, 0, '\'', 1);
    if (pattern != BPE_GPT2)
        m->line_end = in_range(w, 0, '\n', 1) | in_range(w, 0, '\r', 1);
    if (pattern == BPE_O200K) {
        m->upper = in_range(w, 0, 'A', 26);
        m->lower = m->letter & ~m->upper;
        m->slash = in_range(w, 0, '/', 1);
    }
}

/* length in bytes of the character at p, 0 if the bytes up to end are not UTF-8, as Python's decoder has it */
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
 * Add the characters beyond ASCII to the masks: all bytes of a character get its class. *n is how many bytes of the
 * window are known; it falls to the last whole character when the text goes on behind the window (left > n). Returned
 * is 0, or 1 + the offset of what is not UTF-8.
 */
static inline unsigned wide_masks(const uint8_t *window, unsigned *n, size_t left, masks *m)
{
    uint64_t high = m->high & bits_below(*n), of_class[NONE] = {0};
    uint64_t tail = in_range(window, 0, 0x80, 0x40) & bits_below(*n);
    uint64_t lead = CJK_ARE_LETTERS ? in_range(window, 0, 0xE4, 6) : 0;
    if (lead) { /* U+4E00..U+9FFF: E5 to E9, or E4 with B8 or more behind it, and two more bytes */
        lead &= (in_range(window, 0, 0xE5, 5) | in_range(window, 0, 0xB8, 8) >> 1) & tail >> 1 & tail >> 2;
        of_class[BOTH] = lead | lead << 1 | lead << 2;
        high &= ~of_class[BOTH];
    }
    while (high) {
        uint32_t character;
        uint64_t bits;
        unsigned i = lowest_bit(high);
        unsigned length = decode(window + i, window + (left < READABLE ? left : READABLE), &character);
        if (!length)
            return i + 1;
        if (i + length > *n) {
            *n = i;
            break;
        }
        bits = bits_below(length) << i;
        high &= ~bits;
        of_class[class_of(character)] |= bits;
    }
    m->tail = tail;
    m->letter |= of_class[UPPER] | of_class[LOWER] | of_class[BOTH];
    m->number |= of_class[NUMBER];
    m->space |= of_class[SPACE];
    m->upper |= of_class[UPPER];
    m->lower |= of_class[LOWER];
    m->both = of_class[BOTH];
    m->mark = of_class[MARK];
    return 0;
}

/* the length of 's 't 'm 'd 'll 've 're at a quote, with so many bytes left, or 0 */
static inline unsigned contraction(int pattern, const uint8_t *quote, size_t left)
{
    unsigned lower = pattern == BPE_GPT2 ? 0 : 0x20, a = left > 1 ? quote[1] | lower : 0, b = left > 2 ? quote[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((a == 'l' && (b | lower) == 'l') || ((a == 'v' || a == 'r') && (b | lower) == 'e'))
        return 3;
    return lower && b == 0xBF && quote[1] == 0xC5 ? 3 : 0; /* U+017F, an s where case is ignored */
}

/* the first byte of each character of which x has a byte */
static inline uint64_t character_starts(uint64_t x, uint64_t tail)
{
    while (x & tail)
        x = (x & ~tail) | (x & tail) >> 1;
    return x;
}

/* The starts of words after contractions are taken from left to right, at quotes where there may be one. */
static inline uint64_t cut_contractions(int pattern, const uint8_t *window, size_t left, uint64_t quotes,
                                        uint64_t starts)
{
    for (unsigned end = 0; quotes; quotes &= quotes - 1) {
        unsigned i = lowest_bit(quotes), length = contraction(pattern, window + i, left - i);
        if (!LIKELY(length) || (pattern == BPE_O200K && i == end)) /* where one ended, a word begins */
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

/* GPT-2: the bits at which words begin, in a window that begins with one */
static inline uint64_t gpt2_starts(const uint8_t *window, const masks *m, unsigned n, size_t left)
{
    uint64_t known = bits_below(n), other = ~(m->letter | m->number | m->space) & known;
    uint64_t solid = (m->letter | m->number | other) & known, space = m->space & known;
    uint64_t same = (m->letter & m->letter << 1) | (m->number & m->number << 1) | (other & other << 1);
    uint64_t last = character_starts(space & solid >> 1, m->tail); /* whitespace that something follows */
    uint64_t starts = (solid & ~same & ~(m->blank << 1)) | (space & ~(space << 1)) | last | 1;
    return cut_contractions(BPE_GPT2, window, left, m->quote & starts & known, starts) & known;
}

/* every third character of each run of numbers */
static inline uint64_t groups_of_three(uint64_t number, uint64_t tail)
{
    uint64_t at = number & ~(number << 1), groups = at;
    while (at && number & number << 1 & number << 2 & number << 3) {
        for (unsigned k = 0; k < 3; k++) {
            for (at <<= 1; at & tail;)
                at = (at & ~tail) | (at & tail) << 1;
            at &= number;
        }
        groups |= at;
    }
    return groups;
}

/* cl100k and o200k: the bits at which runs of whitespace begin and are cut; solid is what is no whitespace */
static inline uint64_t space_starts(uint64_t space, uint64_t line_end, uint64_t solid, uint64_t tail)
{
    uint64_t plain = space & ~line_end, behind_line = plain & line_end << 1, x;
    uint64_t starts = (space & ~(space << 1)) | character_starts(plain & solid >> 1, tail) | behind_line;
    for (x = (plain + behind_line) & line_end; x; x &= x - 1) /* it was not the last line end */
        starts &= ~((uint64_t)1 << highest_bit(behind_line & bits_below(lowest_bit(x))));
    return starts;
}

/* cl100k and o200k: the same; *n falls to where the starts are known */
static inline uint64_t modern_starts(int pattern, const uint8_t *window, const masks *m, unsigned *n, size_t left)
{
    int o200k = pattern == BPE_O200K;
    uint64_t letter = o200k ? m->letter | m->mark : m->letter, other = ~(letter | m->number | m->space);
    uint64_t hard = (m->mark & other << 1) | (m->upper & (m->both | m->mark) << 1), known = bits_below(*n);
    uint64_t number, space, tail, behind, chain, plain, lone, quotes, starts;
    if (o200k && hard & known) { /* for walk_word */
        *n = lowest_bit(hard);
        known = bits_below(*n);
    }
    letter &= known;
    number = m->number & known;
    tail = m->tail & known;
    /* line ends, and slashes behind them, that belong to the word of others before them */
    behind = (o200k ? m->line_end | m->slash : m->line_end) & known;
    chain = behind & m->line_end & other << 1;
    chain |= ((behind + chain) ^ behind) & behind;
    other &= known & ~chain;
    space = m->space & known & ~chain;
    plain = space & ~m->line_end;

    starts = other & ~(other << 1) & ~(m->blank << 1);
    quotes = m->quote & (o200k ? letter << 1 : starts) & known;
    lone = starts; /* one other character goes with the letters behind it, as whitespace does */
    for (unsigned k = 0; tail && k < 3; k++)
        lone |= lone << 1 & tail;
    starts |= letter & ~((letter | plain | lone) << 1);
    if (o200k)
        starts |= m->upper & m->lower << 1 & known;
    starts |= space_starts(space, m->line_end & space, letter | number | other, tail);
    starts |= groups_of_three(number, tail) | 1;
    starts = cut_contractions(pattern, window, left, quotes, starts);
    if (space >> (*n - 1) & 1 && (left > *n || !o200k)) { /* not known; at the end of a text, cl100k cuts nothing */
        uint64_t before = ~space & known;
        starts &= bits_below(before ? highest_bit(before) + 2 : 1);
    }
    return starts & known;
}

/* the class of the character at p; NONE at the end, and where the text is no UTF-8, which the next window will find */
static inline unsigned class_at(const uint8_t *p, const uint8_t *end, unsigned *length)
{
    uint32_t character;
    *length = p < end ? decode(p, end, &character) : 0;
    return SET(*length ? class_of(character) : NONE);
}

/* the first character behind p that is in none of the classes */
static const uint8_t *skip(const uint8_t *p, const uint8_t *end, unsigned set)
{
    unsigned length;
    while (class_at(p, end, &length) & set)
        p += length;
    return p;
}

/* behind the letters of a word, and in o200k the contraction that goes with them */
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
    else if (behind_both) /* where no lower case follows, the last that can be lower case is the end */
        p = behind_both;
    return p < end && *p == '\'' ? p + contraction(pattern, p, (size_t)(end - p)) : p;
}

/* behind the whitespace that begins a word and is not taken along by what follows */
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

/* The length of the word at text, character by character: for what the masks don't settle, and as the plain reading. */
static size_t walk_word(int pattern, const uint8_t *text, const uint8_t *end)
{
    unsigned letters = pattern == BPE_O200K ? LETTERS | SET(MARK) : LETTERS, others = SET(OTHER) | SET(MARK);
    unsigned length, unused, first = class_at(text, end, &length), next = class_at(text + length, end, &unused);
    unsigned quoted = pattern == BPE_O200K || *text != '\'' ? 0 : contraction(pattern, text, (size_t)(end - text));
    const uint8_t *p = text + length;
    int gpt2 = pattern == BPE_GPT2, blank = *text == ' ';
    int goes_along = gpt2 ? blank : !(first & (SET(NUMBER) | SET(LINE_END))); /* with letters that follow */
    if (quoted)
        p = text + quoted;
    else if (first & letters)
        p = skip_letters(pattern, text, end);
    else if (next & letters && goes_along)
        p = skip_letters(pattern, p, end);
    else if (gpt2 && (first == SET(NUMBER) || (blank && next == SET(NUMBER))))
        p = skip(p, end, SET(NUMBER));
    else if (first == SET(NUMBER))
        for (unsigned k = 0; k < 2 && class_at(p, end, &length) == SET(NUMBER); k++)
            p += length;
    else if (first & others || (blank && next & others)) {
        p = skip(p, end, others);
        while (!gpt2 && p < end && (*p == '\r' || *p == '\n' || (pattern == BPE_O200K && *p == '/')))
            p++;
    } else
        p = skip_spaces(pattern, text, end);
    return (size_t)(p - text);
}

/*
 * The bits at which words begin, behind the first, in a window that begins with one, and has so many bytes left. In the
 * first *n bytes, all are found; *bad is 0, or 1 + the offset of what is not UTF-8.
 */
static NOINLINE uint64_t find_starts(int pattern, const uint8_t *window, size_t left, unsigned *n, unsigned *bad)
{
    uint64_t starts;
    masks m = {0};
    *n = left < WINDOW ? (unsigned)left : WINDOW;
    *bad = 0;
    ascii_masks(pattern, window, &m);
    if (m.high & bits_below(*n) && (*bad = wide_masks(window, n, left, &m)))
        return 0;
    if (pattern == BPE_GPT2)
        starts = gpt2_starts(window, &m, *n, left);
    else if (pattern == BPE_CL100K)
        starts = modern_starts(BPE_CL100K, window, &m, n, left);
    else
        starts = modern_starts(BPE_O200K, window, &m, n, left);
    return starts & ~(uint64_t)1;
}

/*
 * What is done with the words of a text. The 16 bytes from `word` on may be read, whatever the length. What is not
 * BPE_OK ends the scan.
 */
typedef int (*word_sink)(void *state, const uint8_t *word, size_t length);

/*
 * Give the words of text..end to the sink, in their order. Text may be read up to limit; *bad is where it is not UTF-8.
 * It is inlined, so that a sink that is known where it is called is inlined, too.
 */
ALWAYS_INLINE int scan_piece(int pattern, const uint8_t *text, const uint8_t *end, const uint8_t *limit,
                             const uint8_t **bad, word_sink sink, void *state)
{
    uint8_t copy[READABLE];
    while (text < end) {
        size_t left = (size_t)(end - text), length;
        const uint8_t *window = text;
        unsigned at = 0, known, bad_byte;
        int status;
        if ((size_t)(limit - text) < READABLE) {
            memset(copy, 0, sizeof copy);
            window = memcpy(copy, text, left < READABLE ? left : READABLE);
        }
        for (uint64_t starts = find_starts(pattern, window, left, &known, &bad_byte); starts; starts &= starts - 1) {
            unsigned to = lowest_bit(starts);
            status = sink(state, window + at, to - at);
            if (status != BPE_OK)
                return status;
            at = to;
        }
        text += at;
        if (LIKELY(at && left > known))
            continue;
        if (bad_byte) {
            *bad = text + bad_byte - 1;
            return BPE_BAD_UTF8;
        }
        length = left == known ? left - at : walk_word(pattern, text, end);
        status = sink(state, limit - text < 16 ? window + at : text, length);
        if (status != BPE_OK)
            return status;
        text += length;
    }
    return BPE_OK;
}

/* the sink that counts */
ALWAYS_INLINE int count_word(void *words, const uint8_t *word, size_t length)
{
    bpe_words *w = words;
    uint64_t key[2];
    if (!LIKELY(length <= INLINE_MAX))
        return put_long(w, word, length, 1);
    short_key(word, length, key);
    return put_short(w, key[0], key[1], 1);
}

/* count the words of a text; on BPE_BAD_UTF8, *bad_offset is the first byte that is not UTF-8 */
int bpe_words_scan(bpe_words *w, const uint8_t *text, size_t length, size_t *bad_offset)
{
    const uint8_t *end = text + length, *piece = text, *wall, *bad = text;
    if (!w->slots)
        return BPE_USED_UP;
    if (!w->used && length >= LARGE_TEXT && table_grow(w, LARGE_TABLE / 2) != BPE_OK)
        return BPE_NO_MEMORY;
    while (piece < end) {
        size_t which, special = find_special(w->specials, piece, end, &wall, &which);
        int status = scan_piece(w->pattern, piece, wall, end, &bad, count_word, w);
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
    size_t first_ids; /* 1 + the largest id of a byte, until the first index is made; 0 if words are rows of ids */
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
static size_t pair_home(const bpe_learner *l, uint64_t key) { return (size_t)(fold(key, SCRAMBLE) >> l->pair_shift); }

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

static void choose_threshold(bpe_learner *l, uint64_t total, uint64_t merges_wanted)
{
    if (!l->threshold) /* a guess at how rare the last merge will be; a wrong one costs time only */
        l->threshold = total / 64 / (merges_wanted + 1);
    if (l->threshold < l->least)
        l->threshold = l->least;
}

/*
 * The first index of a large array in which the ids are those of bytes and no sum can be too large: as index_pairs has
 * it, but with a plain array of all pairs. Each token is a slot long; walls are counted with the others, as a test for
 * them would cost more.
 */
static int index_bytes(bpe_learner *l, size_t side, uint64_t merges_wanted)
{
    const uint32_t *seq = l->seq;
    const size_t last = l->n_slots - 1;
    neighbour *all = allocate(side * side, sizeof *all, 1);
    uint64_t total = 0;
    int status = all ? BPE_OK : BPE_NO_MEMORY;
    for (size_t group = 0, p = 1; group < l->n_groups && status == BPE_OK; group++)
        for (; p < l->group_end[group] && p < last; p++) {
            neighbour *pair = all + seq[p] * side + seq[p + 1];
            pair->count += l->group_count[group];
            pair->n++;
        }
    for (size_t i = FIRST_ID * side; i < side * side && status == BPE_OK; i++)
        total += i % side < FIRST_ID ? 0 : all[i].count;
    choose_threshold(l, total, merges_wanted);
    for (size_t i = FIRST_ID * side; i < side * side && status == BPE_OK; i++) {
        uint64_t key = pair_key((uint32_t)(i / side), (uint32_t)(i % side));
        if (i % side >= FIRST_ID && all[i].n && may_merge(l, key, all[i].count))
            status = add_pair(l, key, all[i].count, all[i].n, &all[i].list);
    }
    for (size_t p = 1; p < last && status == BPE_OK; p++) {
        neighbour *pair = all + seq[p] * side + seq[p + 1];
        if (pair->list)
            *pair->list++ = (uint32_t)p;
    }
    free(all);
    return status;
}

/* replace the table by one of all pairs that are in the array now and occur at least threshold times */
static int index_pairs(bpe_learner *l, uint64_t merges_wanted)
{
    pair_slot *all;
    size_t capacity, n = 0;
    unsigned bits = 12;
    uint64_t total = 0;
    const size_t side = l->first_ids;
    int status;
    l->first_ids = 0; /* from now on there are others */
    if (side && side < l->n_slots / side && l->group_count[0] <= COUNT_MAX / l->n_slots)
        return index_bytes(l, side, merges_wanted);
    clear_pairs(l);
    l->n_heap = 0;
    status = walk_pairs(l, 0);
    all = l->pairs;
    capacity = l->pair_capacity;
    for (size_t i = 0; i < capacity; i++)
        total = all[i].count > COUNT_MAX - total ? COUNT_MAX : total + all[i].count;
    choose_threshold(l, total, merges_wanted);
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
        grow(&l->bytes, &l->bytes_capacity, l->n_bytes + length + 1, 1) != BPE_OK || /* + 1: there is a block at once */
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
    t->start = first_bytes(l->bytes + l->n_bytes, length);
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
        if (i + AHEAD < n) {
            PREFETCH(seq + list[i + AHEAD] - 1);
            PREFETCH(seq + list[i + AHEAD] + span);
        }
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
 * Make up to `most` merges: -> how many in *made, 0 when no pair is left that may be merged. It comes back earlier,
 * after some millions of replacements, so that the caller can show progress and hear Ctrl-C.
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

/* ---- 2. learning: from words to the array ------------------------------------------------------------------------ */

/* write a word and a wall behind it from *at on */
static int write_word(bpe_learner *l, const uint8_t *word, size_t length, const uint32_t *id_of_byte, size_t *at)
{
    if (!id_of_byte && length % 4)
        return BPE_OVERFLOW;
    for (size_t i = 0; id_of_byte && i < length; i++)
        l->seq[(*at)++] = id_of_byte[word[i]] + FIRST_ID;
    for (size_t i = 0; !id_of_byte && i < length; i += 4) {
        uint32_t id;
        memcpy(&id, word + i, 4);
        if (id >= l->n_tokens - FIRST_ID)
            return BPE_OVERFLOW;
        l->seq[(*at)++] = id + FIRST_ID;
    }
    l->seq[(*at)++] = WALL;
    return BPE_OK;
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

/* all words, by falling count */
static int write_words(bpe_learner *l, const bpe_words *w, const uint32_t *id_of_byte)
{
    size_t n = 1, at = 1;
    listed_word *list = list_words(w, 0);
    int status = list ? BPE_OK : BPE_NO_MEMORY;
    for (size_t i = 0; list && i < w->used; i++)
        n += list[i].length / (id_of_byte ? 1 : 4) + 1;
    if (n >= UINT32_MAX)
        status = BPE_OVERFLOW;
    if (status == BPE_OK && !(l->seq = allocate(n, sizeof *l->seq, 0)))
        status = BPE_NO_MEMORY;
    if (status == BPE_OK) {
        l->n_slots = n;
        l->seq[0] = WALL;
    }
    for (size_t i = 0; status == BPE_OK && i < w->used; i++) {
        if (i + AHEAD < w->used)
            PREFETCH(list[i + AHEAD].word);
        status = write_word(l, list[i].word, list[i].length, id_of_byte, &at);
        if (status == BPE_OK)
            status = add_group(l, COUNT_MAX - list[i].key[1], at);
    }
    free(list);
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
 * Take over all words of a table, which is used up afterwards. tokens are the first n_tokens of the vocabulary, one
 * after the other, by id; id_of_byte is the id of each byte's token, or NULL if the words are rows of uint32_t ids
 * themselves. merges_wanted is about how many merges will be asked for; min_frequency is at least 1; smaller_ids is 1
 * for the tie rule of Hugging Face's trainer.
 */
int bpe_learner_new(bpe_words *w, const uint32_t *id_of_byte, const uint8_t *tokens, const size_t *lengths,
                    size_t n_tokens, uint64_t merges_wanted, uint64_t min_frequency, size_t max_token_length,
                    int smaller_ids, bpe_learner **learner)
{
    bpe_learner *l = *learner = w->slots ? calloc(1, sizeof *l) : NULL;
    int status = !w->slots ? BPE_USED_UP : l ? resize_pairs(l, (size_t)1 << 12, 64 - 12) : BPE_NO_MEMORY;
    for (size_t i = 0; i < n_tokens + FIRST_ID && status == BPE_OK; i++) {
        size_t length = i < FIRST_ID ? 0 : lengths[i - FIRST_ID];
        uint8_t *bytes;
        status = make_room(l, length, &bytes);
        if (status != BPE_OK)
            break;
        if (length) {
            memcpy(bytes, tokens, length);
            tokens += length;
        }
        add_token(l, length, 1);
    }
    if (status == BPE_OK) {
        l->least = min_frequency;
        l->longest = max_token_length;
        l->smaller_ids = smaller_ids;
        for (unsigned byte = 0; id_of_byte && byte < 256; byte++) {
            size_t id = (size_t)id_of_byte[byte] + FIRST_ID;
            if (id >= l->n_tokens)
                status = BPE_OVERFLOW;
            if (l->first_ids <= id)
                l->first_ids = id + 1;
        }
        if (status == BPE_OK)
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

/* ---- 3. encoding: the vocabulary --------------------------------------------------------------------------------- */

/* Inside, the id of a byte's token is the byte, and those of the merges' tokens follow. */
enum { ID_BITS = 21, RANK_BITS = 22, BUCKET = 8, NO_RANK = 1 << RANK_BITS, NO_ID = (1 << ID_BITS) - 1 };
enum { WAS_LEFT = 1, WAS_RIGHT = 2, IS_BYTE = 4 };

typedef struct {
    uint32_t id, inside;              /* the id for the caller; the inner one + 1, 0 in an empty slot */
    uint8_t flags, n_bytes, bytes[3]; /* what is known of it so far; its bytes, where safe merges alone made it */
} id_slot;

struct bpe_encoder {
    uint64_t *pairs; /* buckets of left id, right id, rank in 64 bits; all ones where it is empty */
    size_t n_buckets;
    uint32_t *made;    /* by rank: the token that the merge makes */
    int plain;         /* that is 256 + rank for all of them: a look-up less for each merge */
    uint32_t *outside; /* the ids as the caller has them; UINT32_MAX for a byte without a token */
    uint32_t *special_ids;
    uint32_t byte_pairs[1 << 16]; /* the rank of each pair of bytes, or NO_RANK */
    uint32_t characters[1 << 16]; /* the token of a character of 2 or 3 bytes, if safe merges make it; or 0 */
    specials *specials;
    int pattern;
};

static inline uint64_t pair_bits(uint32_t left, uint32_t right)
{
    return (uint64_t)left << (ID_BITS + RANK_BITS) | (uint64_t)right << RANK_BITS;
}

static inline size_t bucket_of(const bpe_encoder *e, uint64_t pair)
{
    return (size_t)(((pair >> RANK_BITS) * SCRAMBLE >> 32) * e->n_buckets >> 32);
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

static void place_pair(bpe_encoder *e, uint64_t pair)
{
    size_t i = bucket_of(e, pair) * BUCKET;
    while (e->pairs[i] != UINT64_MAX)
        i = i + 1 < e->n_buckets * BUCKET ? i + 1 : 0;
    e->pairs[i] = pair;
}

static id_slot *find_id(id_slot *slots, size_t mask, uint32_t id)
{
    size_t i = (size_t)fold(id ^ SCRAMBLE, SCRAMBLE) & mask;
    while (slots[i].inside && slots[i].id != id)
        i = (i + 1) & mask;
    return slots + i;
}

/* a safe merge makes c of a and b: if such merges alone make a character, keep its token */
static void note_character(bpe_encoder *e, const id_slot *a, const id_slot *b, id_slot *c)
{
    unsigned n = (unsigned)a->n_bytes + b->n_bytes;
    uint32_t character = 0;
    if (!a->n_bytes || !b->n_bytes || n > 3)
        return;
    memcpy(c->bytes, a->bytes, 3);
    memcpy(c->bytes + a->n_bytes, b->bytes, b->n_bytes);
    c->n_bytes = (uint8_t)n;
    if (decode(c->bytes, c->bytes + n, &character) == n)
        e->characters[character] = c->inside - 1;
}

/*
 * Number the tokens, and fill the table of pairs.
 *
 * A merge (a, b) -> c is safe, so that it may be made at once wherever a stands before b, if no earlier merge has a on
 * its right or b on its left, and a is not b: nothing can take one of them away before its turn comes. That needs an
 * ordered list, where no merge uses a token that a later one makes: else a pair with c could come before it.
 */
static int number_tokens(bpe_encoder *e, const uint32_t *id_of_byte, const uint32_t *merges, size_t n_merges,
                         id_slot *slots, size_t mask)
{
    uint32_t n_ids = 256;
    int ordered = 1;
    e->plain = 1;
    for (size_t i = 0; i < 1 << 16; i++)
        e->byte_pairs[i] = NO_RANK;
    for (uint32_t i = 0; i < 256; i++) {
        e->outside[i] = id_of_byte[i];
        if (id_of_byte[i] != UINT32_MAX)
            *find_id(slots, mask, id_of_byte[i]) = (id_slot){id_of_byte[i], i + 1, IS_BYTE, 1, {(uint8_t)i, 0, 0}};
    }
    for (uint32_t rank = 0; rank < n_merges; rank++) {
        id_slot *part[3]; /* left, right, made */
        uint32_t left, right;
        for (unsigned k = 0; k < 3; k++) {
            uint32_t id = *merges++;
            part[k] = find_id(slots, mask, id);
            if (k < 2 ? !part[k]->inside : part[k]->flags)
                ordered = 0;
            if (part[k]->inside)
                continue;
            *part[k] = (id_slot){id, n_ids + 1, 0, 0, {0, 0, 0}};
            e->outside[n_ids++] = id;
            if (n_ids == NO_ID)
                return BPE_OVERFLOW;
        }
        left = part[0]->inside - 1;
        right = part[1]->inside - 1;
        e->made[rank] = part[2]->inside - 1;
        e->plain &= e->made[rank] == 256 + rank;
        place_pair(e, pair_bits(left, right) | rank);
        if ((left | right) < 256)
            e->byte_pairs[left << 8 | right] = rank;
        if (left != right && !(part[0]->flags & WAS_RIGHT) && !(part[1]->flags & WAS_LEFT))
            note_character(e, part[0], part[1], part[2]);
        part[0]->flags |= WAS_LEFT;
        part[1]->flags |= WAS_RIGHT;
    }
    if (!ordered)
        memset(e->characters, 0, sizeof e->characters);
    return BPE_OK;
}

void bpe_encoder_free(bpe_encoder *e)
{
    if (!e)
        return;
    free(e->pairs);
    free(e->made);
    specials_free(e->specials);
    free(e);
}

/*
 * id_of_byte is the id of each byte's token, UINT32_MAX where there is none; merges are rows of (left id, right id, id
 * of the new token) by rank, no pair twice.
 */
int bpe_encoder_new(const uint32_t *id_of_byte, const uint32_t *merges, size_t n_merges, const uint8_t *special_bytes,
                    const size_t *lengths, const uint32_t *special_ids, size_t n_specials, int pattern,
                    bpe_encoder **encoder)
{
    bpe_encoder *e = *encoder = n_merges < NO_ID && n_specials < NO_ID ? calloc(1, sizeof *e) : NULL;
    size_t capacity = 1024;
    id_slot *slots;
    int status = BPE_NO_MEMORY;
    if (!e)
        return n_merges < NO_ID && n_specials < NO_ID ? BPE_NO_MEMORY : BPE_OVERFLOW;
    while (capacity < 4 * (n_merges + 256)) /* a merge has at most three ids of its own */
        capacity *= 2;
    slots = allocate(capacity, sizeof *slots, 1);
    e->n_buckets = n_merges * 2 / BUCKET + 1; /* half full */
    e->pairs = allocate(e->n_buckets * BUCKET, sizeof *e->pairs, 0);
    e->made = allocate(4 * n_merges + 256 + n_specials, sizeof *e->made, 0);
    e->specials = specials_new(special_bytes, lengths, n_specials);
    e->pattern = pattern;
    if (slots && e->pairs && e->made && e->specials) {
        memset(e->pairs, 255, e->n_buckets * BUCKET * sizeof *e->pairs);
        e->outside = e->made + n_merges;
        e->special_ids = e->outside + 3 * n_merges + 256;
        for (size_t i = 0; i < n_specials; i++)
            e->special_ids[i] = special_ids[i];
        status = number_tokens(e, id_of_byte, merges, n_merges, slots, capacity - 1);
    }
    free(slots);
    if (status != BPE_OK) {
        bpe_encoder_free(e);
        *encoder = NULL;
    }
    return status;
}

/* ---- 3. encoding: one word --------------------------------------------------------------------------------------- */

enum { SHORT = 62 }; /* ids that are merged within an array, with a wall on each side */

static inline uint32_t token_of(const bpe_encoder *e, uint32_t rank) { return e->plain ? 256 + rank : e->made[rank]; }

/*
 * Merge n ids, at most SHORT: -> how many are left. keys[i] is the rank of the pair that begins at place i, and i
 * itself, so that the least is the leftmost pair of lowest rank. A bit of `live` is a place where a token begins.
 */
static size_t merge_short(const bpe_encoder *e, uint32_t *out, size_t n)
{
    const uint32_t last = (uint32_t)n + 1, padded = (last + 7) & ~7u;
    uint32_t ids[SHORT + 2], keys[SHORT + 2], least = UINT32_MAX;
    uint64_t live = bits_below(last + 1);
    ids[0] = ids[last] = NO_ID; /* the walls */
    memcpy(ids + 1, out, n * sizeof *out);
    memset(keys, 255, padded * sizeof *keys);
    for (uint32_t i = 1; i + 1 < last; i++) {
        uint32_t left = ids[i], right = ids[i + 1];
        keys[i] = ((left | right) < 256 ? e->byte_pairs[left << 8 | right] : rank_of(e, left, right)) << 6 | i;
        least = keys[i] < least ? keys[i] : least;
    }
    while (least >> 6 < NO_RANK) {
        uint32_t i = least & 63, second = lowest_bit(live & ~bits_below(i + 1)), before, after, others = UINT32_MAX;
        live &= ~((uint64_t)1 << second);
        after = lowest_bit(live & ~bits_below(second));
        before = highest_bit(live & bits_below(i));
        ids[i] = token_of(e, least >> 6);
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

typedef struct {
    uint32_t id, before, after;
} place;

/* set the leaf of the pair at a place; a node is the lesser of its two children, so node 1 is the least leaf */
static void set_leaf(uint64_t *tree, size_t places, size_t at, uint32_t rank)
{
    size_t i = places + at;
    for (tree[i] = (uint64_t)rank << 32 | at; i > 1; i /= 2)
        tree[i / 2] = lesser(tree[i], tree[i ^ 1]);
}

/* the same for any number of ids, in n log n: they are linked, and a tree finds the least pair */
static int merge_long(const bpe_encoder *e, uint32_t *out, size_t *n)
{
    const size_t places = *n + 2, last = *n + 1;
    uint64_t *tree = places < UINT32_MAX ? allocate(places, 2 * sizeof *tree + sizeof(place), 0) : NULL;
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
        p[i].id = token_of(e, (uint32_t)(tree[1] >> 32));
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

/* the ids of a word: *n of them to out, which has room for `length` */
static int merge_word(const bpe_encoder *e, const uint8_t *word, size_t length, uint32_t *out, size_t *n)
{
    int status = BPE_OK;
    *n = 0;
    for (size_t i = 0, size; i < length; i += size) {
        uint32_t character = 0;
        size = decode(word + i, word + length, &character); /* 0 where words to replay are not UTF-8 */
        if (size > 1 && character <= UINT16_MAX && e->characters[character]) {
            out[(*n)++] = e->characters[character];
            continue;
        }
        size = 1;
        if (e->outside[word[i]] == UINT32_MAX)
            return BPE_NO_TOKEN;
        out[(*n)++] = word[i];
    }
    if (*n <= SHORT)
        *n = merge_short(e, out, *n);
    else
        status = merge_long(e, out, n);
    for (size_t i = 0; i < *n && status == BPE_OK; i++)
        out[i] = e->outside[out[i]];
    return status;
}

/* ---- 3. encoding: the memory of words ---------------------------------------------------------------------------- */

#ifndef MEMORY_SLOTS
#define MEMORY_SLOTS ((size_t)1 << 19) /* a power of two; 16 MB */
#endif
#ifndef MEMORY_ARENA
#define MEMORY_ARENA ((size_t)1 << 22) /* 16 MB */
#endif
enum { NEAR = 8 };          /* a word is in one of so many slots from its home on, or forgotten: no search is long */
enum { REMEMBERED = 1023 }; /* bytes of a word that is remembered, at most */

/*
 * 32 bytes. The key is that of Part 1; of a longer word, its hash and its length. Up to three ids of a short word are
 * in the slot, more of them in the arena from ids[0] on; there, the bytes of a longer word stand before its ids.
 */
typedef struct {
    uint64_t key[2]; /* zeros: the slot is empty */
    uint32_t n, ids[3];
} known_word;

struct bpe_memory {
    const bpe_encoder *encoder;
    known_word *slots;
    size_t mask; /* there are NEAR more of them than this says */
    uint32_t *arena;
    size_t arena_size, arena_capacity;
};

/* of a word that has no short key: 16 bytes at a time, the last of them perhaps once more */
static void long_key(const uint8_t *word, size_t length, uint64_t key[2])
{
    const uint8_t *last = word + length - 16;
    uint64_t hash = length;
    for (; word < last; word += 16)
        hash = fold(hash ^ load8(word), load8(word + 8) ^ SCRAMBLE);
    key[0] = fold(hash ^ load8(last), load8(last + 8) ^ SCRAMBLE);
    key[1] = (uint64_t)length << 16;
    ((uint8_t *)key)[15] = LONG_WORD;
}

/* the slot of a word's home; both factors need many bits, and the second half of a short word's key is its length */
static inline known_word *home_of(const bpe_memory *m, const uint64_t key[2])
{
    return m->slots + (fold(key[0] ^ SCRAMBLE, key[1] ^ SCRAMBLE) >> 32 & m->mask);
}

/* the first free slot for a word; else that at its home, whose word is forgotten */
static known_word *free_slot(const bpe_memory *m, const uint64_t key[2])
{
    known_word *home = home_of(m, key);
    for (unsigned i = 0; i < NEAR; i++)
        if (!home[i].key[1])
            return home + i;
    return home;
}

/* n slots, a power of two, with the words that are in the old ones */
static int resize_memory(bpe_memory *m, size_t n)
{
    known_word *old = m->slots, *slots = allocate(n + NEAR, sizeof *slots, 1);
    size_t n_old = old ? m->mask + 1 + NEAR : 0;
    if (!slots)
        return BPE_NO_MEMORY;
    m->slots = slots;
    m->mask = n - 1;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].key[1])
            *free_slot(m, old[i].key) = old[i];
    free(old);
    return BPE_OK;
}

static void forget(bpe_memory *m)
{
    memset(m->slots, 0, (m->mask + 1 + NEAR) * sizeof *m->slots);
    m->arena_size = 0;
}

/* keep a word; `bytes` is 0 if the key says them all */
static int remember(bpe_memory *m, const uint64_t key[2], const uint8_t *word, size_t bytes, const uint32_t *ids,
                    size_t n)
{
    size_t units = bytes ? (bytes + 3) / 4 + n : n > 3 ? n : 0;
    known_word *slot;
    if (m->arena_size + units > MEMORY_ARENA)
        forget(m);
    if (grow(&m->arena, &m->arena_capacity, m->arena_size + units, sizeof *ids) != BPE_OK)
        return BPE_NO_MEMORY;
    if (free_slot(m, key)->key[1] && m->mask + 1 < MEMORY_SLOTS && resize_memory(m, 2 * (m->mask + 1)) != BPE_OK)
        return BPE_NO_MEMORY;
    slot = free_slot(m, key);
    memcpy(slot->key, key, sizeof slot->key);
    slot->n = (uint32_t)n;
    memcpy(units ? m->arena + m->arena_size + units - n : slot->ids, ids, n * sizeof *ids);
    if (units) {
        slot->ids[0] = (uint32_t)m->arena_size;
        memcpy(m->arena + m->arena_size, word, bytes);
        m->arena_size += units;
    }
    return BPE_OK;
}

void bpe_memory_free(bpe_memory *m)
{
    if (!m)
        return;
    free(m->slots);
    free(m->arena);
    free(m);
}

/* for the words of one thread, encoded with e; NULL without memory */
bpe_memory *bpe_memory_new(const bpe_encoder *e)
{
    bpe_memory *m = calloc(1, sizeof *m);
    if (!m || resize_memory(m, MEMORY_SLOTS < 1 << 12 ? MEMORY_SLOTS : 1 << 12) != BPE_OK) {
        free(m);
        return NULL;
    }
    m->encoder = e;
    return m;
}

/* ---- 3. encoding: text ------------------------------------------------------------------------------------------- */

typedef struct {
    const bpe_encoder *e;
    bpe_memory *m;
    uint32_t *ids; /* room for as many as the text has bytes, so there always is enough for those of the next word */
    size_t n, room;
} encoding;

/* what is not the usual case: a longer word, one of more than three ids, a new one */
static int encode_other(encoding *s, const uint8_t *word, size_t length)
{
    const size_t bytes = length > INLINE_MAX ? length : 0; /* that stand before the ids in the arena */
    const known_word *slot;
    uint64_t key[2];
    uint32_t *ids = s->ids + s->n;
    size_t n;
    int status;
    if (bytes)
        long_key(word, length, key);
    else
        short_key(word, length, key);
    slot = home_of(s->m, key);
    for (unsigned i = 0; i < NEAR && slot->key[1]; i++, slot++) {
        const uint32_t *known = slot->ids;
        if (slot->key[0] != key[0] || slot->key[1] != key[1])
            continue;
        if (bytes || slot->n > 3)
            known = s->m->arena + slot->ids[0];
        if (memcmp(known, word, bytes))
            continue;
        known += (bytes + 3) / 4;
        memcpy(ids, known, slot->n * sizeof *ids);
        s->n += slot->n;
        return BPE_OK;
    }
    status = merge_word(s->e, word, length, ids, &n);
    if (status == BPE_OK && length <= REMEMBERED)
        status = remember(s->m, key, word, bytes, ids, n);
    s->n += n;
    return status;
}

/* the sink that encodes */
static inline int encode_word(void *state, const uint8_t *word, size_t length)
{
    encoding *s = state;
    if (LIKELY(length <= INLINE_MAX)) {
        const known_word *slot;
        uint64_t key[2];
        short_key(word, length, key);
        slot = home_of(s->m, key);
        for (unsigned i = 0; i < NEAR && slot->key[1]; i++, slot++)
            if (LIKELY(slot->key[0] == key[0] && slot->key[1] == key[1])) {
                if (!LIKELY(slot->n <= 3 && s->room - s->n >= 3))
                    break;
                memcpy(s->ids + s->n, slot->ids, sizeof slot->ids); /* three, so that there is no loop */
                s->n += slot->n;
                return BPE_OK;
            }
    }
    return encode_other(s, word, length);
}

/*
 * The ids of a text; there is room for `length` of them. BPE_BAD_UTF8 and BPE_NO_TOKEN come with the offset of the
 * first byte that is not UTF-8, or has no token.
 */
int bpe_encode(const bpe_encoder *e, bpe_memory *m, const uint8_t *text, size_t length, uint32_t *ids, size_t *n_ids,
               size_t *bad_offset)
{
    const uint8_t *end = text + length, *piece = text, *wall, *bad = text;
    encoding s = {e, m, ids, 0, length};
    int status = BPE_OK;
    if (m->encoder != e) {
        forget(m);
        m->encoder = e;
    }
    while (piece < end) {
        size_t which, special = find_special(e->specials, piece, end, &wall, &which);
        status = scan_piece(e->pattern, piece, wall, end, &bad, encode_word, &s);
        if (status == BPE_NO_TOKEN) /* the words before had one for each byte */
            for (bad = piece; e->outside[*bad] != UINT32_MAX;)
                bad++;
        if (status != BPE_OK)
            break;
        if (special)
            s.ids[s.n++] = e->special_ids[which];
        piece = wall + special;
    }
    *n_ids = s.n;
    *bad_offset = (size_t)(bad - text);
    return status;
}

/* make n ids, each below 65536, 16 bits wide, in their place */
void bpe_narrow(uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t id = (uint16_t)ids[i];
        memcpy((uint8_t *)ids + 2 * i, &id, 2);
    }
}

/* put each word of a table, encoded, into another one: as a row of uint32_t ids, with its count */
int bpe_words_replay(const bpe_encoder *e, const bpe_words *words, bpe_words *rows)
{
    uint32_t *ids = NULL;
    size_t room = 0, length, n;
    int status = BPE_OK;
    for (size_t i = 0; i < words->capacity && status == BPE_OK; i++) {
        const word_slot *slot = words->slots + i;
        const uint8_t *word;
        if (!slot->count)
            continue;
        word = slot_word(words, slot, &length);
        status = grow(&ids, &room, length, sizeof *ids);
        if (status == BPE_OK)
            status = merge_word(e, word, length, ids, &n);
        if (status == BPE_OK)
            status = put_word(rows, (const uint8_t *)ids, n * sizeof *ids, slot->count);
    }
    free(ids);
    return status;
}
