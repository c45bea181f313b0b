/*
 * bpe_fast.c: the merge loop. Words and their counts go in, merges come out, the same as in Part II of bpe.py.
 *
 * Read Part II first, then the interface below, then the rest in order; the tie rule is in is_better(). The C files of
 * bpe_more count words and encode; they use this file up to the end of its table. Its bpe_extend.c makes learners
 * whose words begin with longer tokens. An example, with `newest` 6 times and `low` 5 times:
 *
 *     bpe_learner_new("newestlow", (uint64_t[]){6, 3}, (uint64_t[]){6, 5}, 2, 32000, 1, seed, &learner);
 *     while (bpe_learner_run(learner, merges, 1000, &made) == BPE_OK)
 *         ...                                       `made` merges, and after BPE_DONE the last ones
 *     bpe_learner_free(learner);
 *
 * There is no mutable global state, so different threads can use different handles. Nothing here prints or exits.
 * With -DCHECKED, assertions check what must hold at some places.
 *
 * Part II keeps a set of words for each pair. Here, all words are in one array, and each pair that is frequent enough
 * has an ascending list of places in it. The array has a slot for each byte, and an empty slot (.) between two words.
 * The id of a token is in its first and in its last slot; the slots inside are empty:
 *     seq   . n e w e s t . ...     after (e, st) -> est:   . n e w est . est . ...
 * So the neighbors of a token at p are seq[p - 1] and seq[p + length], and no word is ever moved.
 *
 * A list is not corrected when a later merge takes one of its tokens. After (e, s) -> es, the list of (s, t) still
 * has the place of `s` in `newest`; but that slot no longer holds the id of s. In general, the pair (a, b) is still
 * at p if seq[p] is a and seq[p + length of a] is b: a token that has taken a or b is newer, so it has another id.
 *
 * A merge (a, b) -> c reads its list once. For each distinct neighbor x on the left, it sums up how often (x, a)
 * became (x, c); for each y on the right, how often (b, y) became (c, y). Then it updates two pairs per sum.
 *
 * Memory: 4 bytes for each byte of the words and for the slot after each word, up to 512 to begin a block for each
 * distinct count, as much again for the first lists, 12 per place of the pair with the longest list, 32 per slot of the
 * table of pairs, 16 per entry of the heap, about 90 per token, and 1.6 MB before the first merge. When the block of
 * lists is full, lists of dead pairs are removed.
 */

#if !defined(CHECKED) && !defined(NDEBUG)
#define NDEBUG
#endif
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* ---- interface: build_ffi.py gives this part to cffi ------------------------------------------------------------- */

enum bpe_status {
    BPE_OK,
    BPE_NO_MEMORY,      /* an allocation failed */
    BPE_OVERFLOW,       /* 2^63 bytes of words or more, counting all occurrences */
    BPE_TOO_MANY_WORDS, /* the array would have 2^32 - 1 slots or more */
    BPE_DONE            /* no pair is left to merge, or no more merges are wanted */
};

typedef struct bpe_learner bpe_learner;
typedef struct { uint32_t left, right; uint64_t count, replaced; } bpe_merge;

/* Take n different words, concatenated, by descending count; they can be freed afterwards. The ids of bytes are 0 to 255;
   the first merge makes the token 256. merges_wanted is the largest number of merges. A min_frequency of 0 means 1. The
   seed is two random numbers, kept secret. Writes a handle, or NULL, even after an error: free it. */
int bpe_learner_new(const uint8_t *bytes, const uint64_t *lengths, const uint64_t *counts, size_t n,
                    uint64_t merges_wanted, uint64_t min_frequency, const uint64_t seed[2], bpe_learner **learner);

/* Make up to `most` merges and write their number to *made. Returns BPE_DONE when no merge is left, or none is wanted,
   and BPE_OK before that: after `most` merges, or after about 0.1 s, so that the caller can show progress and react to
   Ctrl-C. With millions of rare words, this and bpe_learner_new can take 1 s: large blocks are moved or cleared.
   Any other status than BPE_OK is returned by every further call. */
int bpe_learner_run(bpe_learner *l, bpe_merge *merges, size_t most, size_t *made);
void bpe_learner_free(bpe_learner *l);

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

#ifndef HUGE_FROM
#define HUGE_FROM ((size_t)1 << 20) /* the size of blocks, in bytes, from which on they get huge pages */
#endif

enum { FIRST_SLOTS = 1 << 8 }; /* of a new table, a power of two */
enum { AHEAD = 48 };           /* how many places ahead memory is fetched; 16 or 96 do, too */
enum { FEW_AHEAD = 8 };        /* the same for words and pairs, with more work in between; 4 or 16 do, too */

/* ---- small things ------------------------------------------------------------------------------------------------ */

#if defined(__GNUC__) && !defined(PLAIN_C) /* PLAIN_C is for tests of what other compilers get */
#define PREFETCH(p) __builtin_prefetch(p)
#else
#define PREFETCH(p) ((void)(p))
#endif

#define TRY(call) /* return the status of a call unless it is BPE_OK */ \
    do { \
        const int status_of_call = (call); \
        if (status_of_call != BPE_OK) \
            return status_of_call; \
    } while (0)

/* the exclusive or of both halves of the product, of 128 bits: a good hash as long as a factor is secret */
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

/* Add the bytes of a word that occurs `count` times to a total below 2^63. So no count of words or pairs, and no sum of
   counts, can overflow. */
static int add_bytes(uint64_t *total, uint64_t length, uint64_t count)
{
    if (length && count > (INT64_MAX - *total) / length)
        return BPE_OVERFLOW;
    *total += length * count;
    return BPE_OK;
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

/* Make room for `needed` elements in a block that grows by half. On failure, it is unchanged. The address may be that
   of any kind of pointer, and only memcpy may read and write it as a void pointer. */
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
    uint64_t key[2];       /* for a pair {both ids, 1}; key[1] is 0 in an empty slot, and only there */
    uint64_t where, count; /* where: the index of a pair's list */
} slot;

typedef struct {
    slot *slots;
    size_t capacity, used; /* capacity is a power of two */
    unsigned shift;        /* 64 - log2(capacity) */
    uint64_t seed[2];      /* 100,000 words with chosen hashes took 83 s instead of 0.13: so the hash has a secret */
} table;

static inline size_t home_of(const table *t, uint64_t key0, uint64_t key1)
{
    return (size_t)(fold(key0 ^ t->seed[0], key1 ^ t->seed[1]) >> t->shift);
}

/* Make room for n keys in all: at most 3/4 of the slots are used. On failure, the table is unchanged. */
static int make_room(table *t, uint64_t n)
{
    const slot *const old = t->slots, *const old_end = old ? old + t->capacity : old;
    size_t capacity = t->capacity ? t->capacity : FIRST_SLOTS;
    slot *slots;
    for (; n > capacity / 4 * 3; capacity *= 2)
        if (capacity > SIZE_MAX / 2 / sizeof *slots)
            return BPE_NO_MEMORY;
    if (capacity == t->capacity)
        return BPE_OK;
    if (!(slots = allocate(capacity, sizeof *slots)))
        return BPE_NO_MEMORY;

    for (t->shift = 64; capacity >> (64 - t->shift) > 1; t->shift--)
        ;
    for (const slot *s = old; s < old_end; s++)
        if (s->key[1]) {
            size_t i = home_of(t, s->key[0], s->key[1]);
            while (slots[i].key[1])
                i = (i + 1) & (capacity - 1);
            slots[i] = *s;
        }
    free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return BPE_OK;
}

static int new_table(table *t, const uint64_t seed[2])
{
    memcpy(t->seed, seed, sizeof t->seed);
    return make_room(t, 0);
}

static void free_table(table *t)
{
    free(t->slots);
    memset(t, 0, sizeof *t);
}

/* Put a key that is not in the table into the empty slot that was found for it. */
static void use_slot(table *t, slot *s, const uint64_t key[2])
{
    assert(!s->key[1] && key[1]);
    t->used++;
    memcpy(s->key, key, sizeof s->key);
}

/* Find the slot with this key, or the empty slot for it. */
static inline slot *find_slot(const table *t, uint64_t key0, uint64_t key1)
{
    for (size_t i = home_of(t, key0, key1);; i = (i + 1) & (t->capacity - 1)) {
        slot *s = t->slots + i;
        if (!s->key[1] || (s->key[0] == key0 && s->key[1] == key1))
            return s;
    }
}

/* Empty a slot. A search for a key that is stored after its home would end at the hole: such keys move back. */
static void drop_slot(table *t, slot *s)
{
    const size_t mask = t->capacity - 1;
    size_t hole = (size_t)(s - t->slots);
    for (size_t i = (hole + 1) & mask; t->slots[i].key[1]; i = (i + 1) & mask)
        if (((i - home_of(t, t->slots[i].key[0], t->slots[i].key[1])) & mask) >= ((i - hole) & mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    t->slots[hole] = (slot){{0, 0}, 0, 0};
    t->used--;
}

/* ---- learning: tokens, the heap, and the table of pairs ---------------------------------------------------------- */

enum { NO_TOKEN, FIRST_ID, ROWS = FIRST_ID + 256 }; /* inside the learner, each id is the caller's + 1 */
enum { BLOCK = 128 };                               /* slots of the array that share a count */
enum { WORK_PER_CALL = 1 << 20 };                   /* places; about 0.1 s */
enum { LEFT, RIGHT, N_PLACES, PLACES };             /* a pair's list: its tokens (here and elsewhere, the sides of a
                                                       pair), the number of places, and the places */

typedef struct { uint64_t key, count; } heap_entry;

typedef struct { /* the sum of a pair that may be added to the table; then a cursor for writing its list */
    uint64_t count;
    size_t list; /* the index in `lists` of its next place; 0 if the pair is too rare for the table */
    uint32_t n;  /* number of places */
} new_pair;

typedef struct {
    uint32_t length;
    size_t where;       /* offset of the bytes */
    uint64_t start;     /* the first 8 bytes as a number, padded with zeros: decides nearly all comparisons */
    new_pair beside[2]; /* during a merge, this token on the LEFT of the new one, and on its RIGHT; or zero */
} token_info;

typedef struct { uint32_t place, left, right; } replacement; /* of a pair: its place and its two neighbors */
typedef struct { uint32_t id, side; } neighbor;              /* a token on the LEFT or RIGHT of replaced pairs */

/* Most pairs are too rare to be merged. Counts never rise: a merge takes occurrences away from other pairs, and all
   pairs that it adds contain its new token. So rare pairs can be left out, or wait outside the heap:
     - `pairs` holds, between merges, exactly the pairs that occur at least `threshold` times. A pair leaves when its
       count falls below the threshold or when it is merged, and never comes back.
     - `heap` has one entry for each of these pairs that occurs at least `level` times, and some that no longer do. The
       count of an entry is that of the pair or an earlier, larger one; next_pair corrects the one at the top. */
struct bpe_learner {
    int status;           /* any other than BPE_OK is final */
    uint64_t wanted;      /* the most merges that may follow */
    uint64_t threshold, level;
    table pairs;
    heap_entry *heap;
    size_t n_heap, heap_capacity;
    uint32_t *lists;      /* for each pair, and some that are gone, a header, then its places in ascending order */
    size_t n_lists, lists_capacity;
    uint32_t *seq;        /* the array of all words */
    size_t n_slots;
    uint64_t *counts;     /* of the words in a block of the array */
    new_pair *byte_pairs; /* a matrix of ROWS rows; used until the pairs of bytes are in the table */
    token_info *tokens;
    size_t n_tokens, token_capacity;
    uint8_t *bytes;       /* of all tokens */
    size_t n_bytes, bytes_capacity;
    neighbor *met;        /* the distinct neighbors of the pairs that this merge has replaced */
    size_t n_met, met_capacity;
    replacement *replaced;
    size_t replaced_capacity;
    int (*forbids)(const bpe_learner *l, const uint8_t *token, size_t length); /* of bpe_extend.c, or NULL */
};

static inline uint64_t pair_key(uint32_t left, uint32_t right) { return (uint64_t)left << 32 | right; }
static inline uint32_t left_of(uint64_t key) { return (uint32_t)(key >> 32); }
static inline uint32_t right_of(uint64_t key) { return (uint32_t)key; }

/* Find the slot of a pair, or an empty slot, whose count is 0. */
static inline slot *find_pair(const bpe_learner *l, uint64_t key)
{
    return find_slot(&l->pairs, key, 1);
}

/* Compare bytes: negative, 0 or positive. */
static int compare_bytes(const uint8_t *x, size_t x_length, const uint8_t *y, size_t y_length)
{
    const int order = memcmp(x, y, x_length < y_length ? x_length : y_length);
    return order ? order : (x_length > y_length) - (x_length < y_length);
}

/* Compare two tokens by their bytes. */
static int compare_tokens(const bpe_learner *l, uint32_t a, uint32_t b)
{
    const token_info *x = l->tokens + a, *y = l->tokens + b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return compare_bytes(l->bytes + x->where, x->length, l->bytes + y->where, y->length);
}

/* The order of merges: the larger count first. The tie rule: then the greater left token, then the greater right one. */
static int is_better(const bpe_learner *l, const heap_entry *x, const heap_entry *y)
{
    int order;
    if (x->count != y->count)
        return x->count > y->count;
    order = compare_tokens(l, left_of(x->key), left_of(y->key));
    return order ? order > 0 : compare_tokens(l, right_of(x->key), right_of(y->key)) > 0;
}

/* Move the entry at the top down to its place. */
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

/* Put an entry into the heap. */
static int heap_push(bpe_learner *l, heap_entry entry)
{
    size_t i = l->n_heap;
    TRY(grow(&l->heap, &l->heap_capacity, i + 1, sizeof *l->heap));
    for (l->n_heap++; i && is_better(l, &entry, l->heap + (i - 1) / 2); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = entry;
    return BPE_OK;
}

/* Add a token; its bytes are already at the end of l->bytes. */
static int add_token(bpe_learner *l, size_t length)
{
    const uint8_t *bytes = l->bytes + l->n_bytes;
    uint64_t start = 0;
    assert(l->n_tokens + 1 < UINT32_MAX && length < UINT32_MAX); /* since the array is that small */
    TRY(grow(&l->tokens, &l->token_capacity, l->n_tokens + 1, sizeof *l->tokens));
    for (size_t i = 0; i < 8; i++)
        start = start << 8 | (i < length ? bytes[i] : 0u);
    l->tokens[l->n_tokens++] = (token_info){.length = (uint32_t)length, .where = l->n_bytes, .start = start};
    l->n_bytes += length;
    return BPE_OK;
}

/* Make room for lists of n more numbers. If the block is full, lists of pairs that are not in the table go first. */
static int make_room_for_lists(bpe_learner *l, size_t n)
{
    size_t end = 0;
    if (l->n_lists + n <= l->lists_capacity)
        return BPE_OK;
    for (size_t at = 0, size; at < l->n_lists; at += size) {
        slot *s = find_pair(l, pair_key(l->lists[at + LEFT], l->lists[at + RIGHT]));
        size = PLACES + l->lists[at + N_PLACES];
        if (s->key[1]) {
            memmove(l->lists + end, l->lists + at, size * sizeof *l->lists);
            s->where = end;
            end += size;
        }
    }
    l->n_lists = end;
    l->lists_capacity = 0; /* so that grow gives just what is needed */
    return grow(&l->lists, &l->lists_capacity, end + end / 2 + n, sizeof *l->lists);
}

/* Add a pair to the table, unless it is too rare, and reserve its list, which the caller writes. */
static int add_pair(bpe_learner *l, uint64_t pair, new_pair *sum)
{
    slot *s;
    if (left_of(pair) == NO_TOKEN || right_of(pair) == NO_TOKEN || sum->count < l->threshold)
        return BPE_OK;
    assert(l->n_lists + PLACES + sum->n <= l->lists_capacity);
    TRY(make_room(&l->pairs, (uint64_t)l->pairs.used + 1));
    s = find_pair(l, pair);
    use_slot(&l->pairs, s, (uint64_t[2]){pair, 1});
    s->count = sum->count;
    s->where = l->n_lists;
    l->lists[l->n_lists + LEFT] = left_of(pair);
    l->lists[l->n_lists + RIGHT] = right_of(pair);
    l->lists[l->n_lists + N_PLACES] = sum->n;
    sum->list = l->n_lists + PLACES;
    l->n_lists = sum->list + sum->n;
    return sum->count >= l->level ? heap_push(l, (heap_entry){pair, sum->count}) : BPE_OK;
}

/* ---- learning: from words to pairs ------------------------------------------------------------------------------- */

/* Allocate an array with room for words of these lengths, and choose the threshold: the count of the last of the l->wanted
   most frequent words of two bytes or more. A merge makes one token, so it completes at most one word: that with its
   bytes. So before each of the wanted merges, one of these words still has a pair, and the best pair occurs at least as
   often. */
static int new_array(bpe_learner *l, const uint64_t *lengths, const uint64_t *counts, size_t n_words)
{
    uint64_t wanted = l->wanted, total = 0, n = 2 * BLOCK; /* an empty block, and one for rounding */
    for (size_t i = 0; i < n_words; i++) {
        assert(!i || counts[i] <= counts[i - 1]);
        TRY(add_bytes(&total, lengths[i], counts[i]));
        n += lengths[i] + 1 + (i && counts[i] == counts[i - 1] ? 0 : BLOCK);
        if (n >= UINT32_MAX)
            return BPE_TOO_MANY_WORDS;
        if (lengths[i] > 1 && --wanted == 0 && counts[i] > l->threshold)
            l->threshold = counts[i];
    }
    l->seq = allocate((size_t)n, sizeof *l->seq);
    l->counts = allocate((size_t)n / BLOCK, sizeof *l->counts);
    l->byte_pairs = allocate(ROWS * ROWS, sizeof *l->byte_pairs);
    l->n_slots = BLOCK;
    return l->seq && l->counts && l->byte_pairs ? BPE_OK : BPE_NO_MEMORY;
}

/* Reserve the slots of the next word in the array, and return the first one. Words with different counts don't share a
   block, so one count per block is enough. */
static size_t next_word(bpe_learner *l, uint64_t length, uint64_t count)
{
    size_t p = l->n_slots;
    if (count != l->counts[(p - 1) / BLOCK])
        p = (p + BLOCK - 1) / BLOCK * BLOCK;
    l->n_slots = p + (size_t)length + 1;
    for (size_t block = p / BLOCK; block <= (l->n_slots - 1) / BLOCK; block++)
        l->counts[block] = count;
    return p;
}

/* Write words into the array, and sum up their pairs. */
static void write_words(bpe_learner *l, const uint8_t *bytes, const uint64_t *lengths, const uint64_t *counts, size_t n)
{
    for (size_t i = 0; i < n; bytes += lengths[i++]) {
        const size_t p = next_word(l, lengths[i], counts[i]);
        for (size_t k = 0; k < lengths[i]; k++)
            l->seq[p + k] = bytes[k] + FIRST_ID;
        for (size_t k = 1; k < lengths[i]; k++) {
            new_pair *sum = l->byte_pairs + l->seq[p + k - 1] * ROWS + l->seq[p + k];
            sum->n++;
            sum->count += counts[i];
        }
    }
}

/* Add all pairs of bytes to the table, and list their places. */
static int index_byte_pairs(bpe_learner *l)
{
    TRY(make_room_for_lists(l, l->n_slots + PLACES * ROWS * ROWS));
    for (uint32_t i = 0; i < ROWS * ROWS; i++)
        TRY(add_pair(l, pair_key(i / ROWS, i % ROWS), l->byte_pairs + i));
    for (size_t p = BLOCK; p + 1 < l->n_slots; p++) {
        new_pair *sum = l->byte_pairs + l->seq[p] * ROWS + l->seq[p + 1];
        if (sum->list)
            l->lists[sum->list++] = (uint32_t)p;
    }
    free(l->byte_pairs);
    l->byte_pairs = NULL;
    return BPE_OK;
}

/* ---- learning: merges -------------------------------------------------------------------------------------------- */

/* Count a neighbor of a replaced pair. */
static inline void meet(bpe_learner *l, unsigned side, uint32_t id, uint64_t count)
{
    new_pair *sum = &l->tokens[id].beside[side];
    if (!sum->n++)
        l->met[l->n_met++] = (neighbor){id, side};
    sum->count += count;
}

static inline void prefetch_place(const bpe_learner *l, uint32_t p, size_t length)
{
    PREFETCH(l->seq + p - 1);
    PREFETCH(l->seq + p + length);
    PREFETCH(l->counts + p / BLOCK);
}

/* Replace the pair (a, b) by c at the n places in a list, except outdated ones, and note the neighbors. Returns how
   many were replaced; *weight is the sum of their counts. */
static size_t replace_pairs(bpe_learner *l, const uint32_t *list, size_t n, uint32_t a, uint32_t b, uint32_t c,
                            uint64_t *weight)
{
    uint32_t *seq = l->seq;
    const size_t length_a = l->tokens[a].length, length = l->tokens[c].length;
    size_t made = 0;
    for (size_t i = 0; i < n && i < AHEAD; i++) /* most lists are shorter than AHEAD */
        prefetch_place(l, list[i], length);
    for (size_t i = 0; i < n; i++) {
        const uint32_t p = list[i];
        if (i + AHEAD < n)
            prefetch_place(l, list[i + AHEAD], length);
        if (seq[p] == a && seq[p + length_a] == b) {
            const uint64_t count = l->counts[p / BLOCK];
            const uint32_t x = seq[p - 1], y = seq[p + length];
            meet(l, LEFT, x, count);
            meet(l, RIGHT, y, count);
            l->replaced[made++] = (replacement){p, x, y};
            seq[p + length_a - 1] = seq[p + length_a] = NO_TOKEN;
            seq[p] = seq[p + length - 1] = c;
            *weight += count;
        }
    }
    return made;
}

/* The pair of a neighbor on the LEFT and `first`, or of `last` and a neighbor on the RIGHT. */
static inline uint64_t pair_beside(neighbor n, uint32_t first, uint32_t last)
{
    return n.side == LEFT ? pair_key(n.id, first) : pair_key(last, n.id);
}

/* Add the pairs (x, c) and (c, y), then subtract the same counts from the pairs (x, a) and (b, y). In this order: when
   a + b -> c in `abab`, the first replacement has an a on its right, and counts (c, a). The second one takes that a;
   its left neighbor is c, so (c, a) loses what (c, c) gains, like any pair (x, a). The same with a + a in `aaaa`. */
static int update_pairs(bpe_learner *l, uint32_t a, uint32_t b, uint32_t c)
{
    for (size_t i = 0; i < l->n_met; i++)
        TRY(add_pair(l, pair_beside(l->met[i], c, c), &l->tokens[l->met[i].id].beside[l->met[i].side]));
    for (size_t i = 0; i < l->n_met; i++) {
        const neighbor n = l->met[i];
        slot *lost = find_pair(l, pair_beside(n, a, b));
        if (i + FEW_AHEAD < l->n_met)
            PREFETCH(l->pairs.slots + home_of(&l->pairs, pair_beside(l->met[i + FEW_AHEAD], a, b), 1));
        if (lost->key[1] && (lost->count -= l->tokens[n.id].beside[n.side].count) < l->threshold)
            drop_slot(&l->pairs, lost);
    }
    return BPE_OK;
}

/* Fill the lists of the new pairs from the n places of c, and forget the neighbors. */
static void list_new_pairs(bpe_learner *l, size_t n)
{
    for (const replacement *one = l->replaced; one < l->replaced + n; one++) {
        token_info *left = l->tokens + one->left, *right = l->tokens + one->right;
        if (left->beside[LEFT].list)
            l->lists[left->beside[LEFT].list++] = one->place - left->length;
        if (right->beside[RIGHT].list)
            l->lists[right->beside[RIGHT].list++] = one->place;
    }
    for (const neighbor *met = l->met; met < l->met + l->n_met; met++)
        l->tokens[met->id].beside[met->side] = (new_pair){0, 0, 0};
    l->n_met = 0;
}

/* Merge a pair, which leaves the table. That is all if its bytes are forbidden. */
static int make_merge(bpe_learner *l, slot *pair, bpe_merge *merge)
{
    const uint32_t a = left_of(pair->key[0]), b = right_of(pair->key[0]), c = (uint32_t)l->n_tokens;
    const token_info *left = l->tokens + a, *right = l->tokens + b; /* before add_token moves them */
    const size_t length = (size_t)left->length + right->length, end = l->n_bytes, list = pair->where;
    size_t n = l->lists[list + N_PLACES];
    *merge = (bpe_merge){a - FIRST_ID, b - FIRST_ID, pair->count, 0};
    drop_slot(&l->pairs, pair);
    TRY(grow(&l->bytes, &l->bytes_capacity, end + length, 1));
    memcpy(l->bytes + end, l->bytes + left->where, left->length);
    memcpy(l->bytes + end + left->length, l->bytes + right->where, right->length);
    if (l->forbids && l->forbids(l, l->bytes + end, length))
        return BPE_OK;
    TRY(add_token(l, length));
    TRY(grow(&l->replaced, &l->replaced_capacity, n, sizeof *l->replaced));
    TRY(grow(&l->met, &l->met_capacity, 2 * l->n_tokens, sizeof *l->met));
    n = replace_pairs(l, l->lists + list + PLACES, n, a, b, c, &merge->replaced);
    TRY(make_room_for_lists(l, PLACES * l->n_met + 2 * n));
    TRY(update_pairs(l, a, b, c));
    list_new_pairs(l, n);
    return BPE_OK;
}

/* Refill the empty heap with the pairs that occur at least half as often as the most frequent one. Most others lose
   occurrences before the level comes down to them, and a small heap is fast. */
static int fill_heap(bpe_learner *l)
{
    const slot *const end = l->pairs.slots + l->pairs.capacity;
    uint64_t most = 0;
    for (const slot *s = l->pairs.slots; s < end; s++)
        most = s->count > most ? s->count : most;
    l->level = most - most / 2;
    for (const slot *s = l->pairs.slots; s < end; s++)
        if (s->key[1] && s->count >= l->level)
            TRY(heap_push(l, (heap_entry){s->key[0], s->count}));
    return l->n_heap ? BPE_OK : BPE_DONE;
}

/* Find the best pair of the table. */
static int next_pair(bpe_learner *l, slot **pair)
{
    for (;; heap_down(l)) {
        if (!l->n_heap)
            TRY(fill_heap(l));
        *pair = find_pair(l, l->heap->key);
        assert((*pair)->count <= l->heap->count);
        if ((*pair)->count == l->heap->count)
            return BPE_OK; /* the entry goes at the next call, when the pair is merged and its count 0 */
        if ((*pair)->count >= l->level)
            l->heap->count = (*pair)->count;
        else
            *l->heap = l->heap[--l->n_heap];
    }
}

int bpe_learner_run(bpe_learner *l, bpe_merge *merges, size_t most, size_t *made)
{
    slot *pair;
    *made = 0;
    if (l->byte_pairs && l->status == BPE_OK) /* only now: the caller may have freed the words */
        l->status = index_byte_pairs(l);
    for (size_t work = 0; *made < most && work < WORK_PER_CALL && l->status == BPE_OK;) {
        const size_t n_tokens = l->n_tokens;
        l->status = l->wanted ? next_pair(l, &pair) : BPE_DONE;
        if (l->status == BPE_OK) {
            work += l->lists[pair->where + N_PLACES];
            l->status = make_merge(l, pair, merges + *made);
            l->wanted -= l->n_tokens - n_tokens;
        }
        *made += l->status == BPE_OK && l->n_tokens > n_tokens;
    }
    return l->status;
}

/* ---- learning: a learner ----------------------------------------------------------------------------------------- */

void bpe_learner_free(bpe_learner *l)
{
    if (!l)
        return;
    free_table(&l->pairs);
    free(l->heap);
    free(l->lists);
    free(l->seq);
    free(l->counts);
    free(l->byte_pairs);
    free(l->tokens);
    free(l->bytes);
    free(l->met);
    free(l->replaced);
    free(l);
}

/* Begin a learner without words. Its first tokens are an empty one, for NO_TOKEN, and the 256 single bytes. */
static int begin_learner(bpe_learner *l, uint64_t merges_wanted, uint64_t min_frequency, const uint64_t seed[2])
{
    l->wanted = merges_wanted;
    l->threshold = min_frequency ? min_frequency : 1;
    l->level = UINT64_MAX; /* the heap is filled when it is first used */
    TRY(new_table(&l->pairs, seed));
    TRY(grow(&l->bytes, &l->bytes_capacity, 256, 1));
    TRY(add_token(l, 0));
    for (unsigned byte = 0; byte < 256; byte++) {
        l->bytes[byte] = (uint8_t)byte;
        TRY(add_token(l, 1));
    }
    return BPE_OK;
}

int bpe_learner_new(const uint8_t *bytes, const uint64_t *lengths, const uint64_t *counts, size_t n,
                    uint64_t merges_wanted, uint64_t min_frequency, const uint64_t seed[2], bpe_learner **learner)
{
    bpe_learner *l = *learner = calloc(1, sizeof *l);
    if (!l)
        return BPE_NO_MEMORY;
    l->status = begin_learner(l, merges_wanted, min_frequency, seed);
    if (l->status == BPE_OK)
        l->status = new_array(l, lengths, counts, n);
    if (l->status == BPE_OK)
        write_words(l, bytes, lengths, counts, n);
    return l->status;
}
