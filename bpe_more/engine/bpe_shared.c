/*
 * bpe_shared.c: what counting (bpe_words.c) and encoding (bpe_encode.c) have in common: words as keys, and how words get
 * from the scanner to those who want them.
 *
 * build_ffi.py compiles the C files in the order bpe_fast.c, bpe_extend.c, bpe_shared.c, bpe_words.c, bpe_encode.c,
 * bpe_lists.c, as one source. This one uses the first part of bpe_fast.c, up to its table, and has nothing of learning.
 *
 * THE TABLE  Words, special tokens and cached words are keys of 16 bytes in a slot of 32:
 *     key    n e w e s t . . | . . . . . . . 6     a word of up to 15 bytes, then zeros; the last byte is its length
 *     key    hash, 8 bytes   | length, 7 b.  128   a longer word, whose bytes are in the arena
 *     value  offset in the arena, if the word is there | count
 *     value  new | est | . . . . | n = 2           the ids of a cached word, if it is short and they fit
 *
 * SLICES  A slice is any number of texts, concatenated, and the end of each. No word reaches across an end. An example with
 * three texts, the second one empty:
 *     texts  "low lower" "" "newest"      ends   9 9 15
 *
 * BATCHES  bpe_words.c finds the words of a slice (scan_texts), and gives them to a sink, some 128 at a time, so that
 * memory is asked for all their slots before the first is used. One sink counts; that of bpe_encode.c looks up ids.
 */

/* ---- interface: build_ffi.py gives this part to cffi ------------------------------------------------------------- */

enum bpe_text_status { /* in addition to enum bpe_status */
    BPE_USED_UP = 16,    /* the words were dropped after an earlier error */
    BPE_BAD_UTF8,        /* the text is not UTF-8 */
    BPE_NO_TOKEN,        /* the vocabulary has no token for a byte of the text */
    BPE_TOO_MANY_TOKENS, /* for an encoder: 2^21 - 1 or more */
    BPE_LONG_WORD        /* for an encoder: about 2^32 units, which are characters or bytes, or more */
};

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

enum { INLINE_MAX = 15, LONG_WORD = 128 }; /* the longest word that is a key, in bytes; the last byte of other keys */
enum { PIECE = 64 };                       /* a bit of that byte, for the pieces of a word */
enum { BYTES_PER_WORD = 20 };              /* of text: a table gets room for as many words before text is scanned, */
enum { FITTED_WORDS = 3 << 17 };           /* but for no more than these: 2^19 slots */
enum { WINDOW = 64 };                      /* bytes of text that the scanner reads at once */
enum { BATCH = 128 };                      /* words that are looked up together */
enum { BATCH_ROOM = BATCH + WINDOW + 1 };  /* BATCH - 1, a word before a window, WINDOW in it, and one at the end */

/* ---- small things ------------------------------------------------------------------------------------------------ */

#if defined(__GNUC__) && !defined(PLAIN_C)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#else
#define LIKELY(x) (x)
#define ALWAYS_INLINE static inline
#define NOINLINE
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

/* ---- words as keys ----------------------------------------------------------------------------------------------- */

typedef struct {
    table table;
    uint8_t *arena; /* the bytes of long words */
    size_t arena_size, arena_capacity;
} word_table;

static void free_words(word_table *w)
{
    free_table(&w->table);
    free(w->arena);
    memset(w, 0, sizeof *w);
}

/* Append bytes to the arena. */
static int keep_bytes(word_table *w, const void *bytes, size_t n)
{
    TRY(grow(&w->arena, &w->arena_capacity, w->arena_size + n, 1));
    memcpy(w->arena + w->arena_size, bytes, n);
    w->arena_size += n;
    return BPE_OK;
}

/* Make the key of a word of up to INLINE_MAX bytes, from 16 bytes that begin with it. A row has, for a length, the bits to
   keep of each 8 bytes, and the last byte. */
static inline void short_key(const uint8_t *word, size_t length, uint64_t key[2])
{
#define KEEP(n) little((n) > 7 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * ((n) % 8)) - 1)
#define ROW(n) {KEEP(n), KEEP((n) > 8 ? (n) - 8 : 0), little((uint64_t)(n) << 56)}
    static const uint64_t rows[INLINE_MAX + 1][3] = {ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7),
                                                     ROW(8), ROW(9), ROW(10), ROW(11), ROW(12), ROW(13), ROW(14), ROW(15)};
    const uint64_t *row = rows[length];
    key[0] = load8(word) & row[0];
    key[1] = (load8(word + 8) & row[1]) | row[2];
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

/* Get the length of the word with this key. */
static inline size_t length_of(const uint64_t key[2])
{
    const uint64_t number = little(key[1]), last = number >> 56 & ~(uint64_t)PIECE;
    return (size_t)(last > INLINE_MAX ? number << 8 >> 8 : last);
}

static inline int has_key(const slot *s, const uint64_t key[2]) { return s->key[0] == key[0] && s->key[1] == key[1]; }

/* Find the slot of a word with this key, or the empty slot for it. */
static inline slot *find_word(const word_table *w, const uint64_t key[2], const uint8_t *word)
{
    const table *const t = &w->table;
    const size_t length = length_of(key);
    for (size_t i = home_of(t, key[0], key[1]);; i = (i + 1) & (t->capacity - 1)) {
        slot *s = t->slots + i;
        if (!s->key[1] ||
            (LIKELY(has_key(s, key)) && (length <= INLINE_MAX || !memcmp(w->arena + s->where, word, length))))
            return s;
    }
}

/* Add to the count of a word with this key. */
static NOINLINE int put_word(word_table *w, const uint64_t key[2], const uint8_t *word, uint64_t count)
{
    const size_t length = length_of(key);
    slot *s;
    TRY(make_room(&w->table, (uint64_t)w->table.used + 1));
    s = find_word(w, key, word);
    if (!s->key[1]) {
        if (length > INLINE_MAX)
            TRY(keep_bytes(w, word, length));
        use_slot(&w->table, s, key);
        s->where = w->arena_size - length; /* not used if the word is short */
    }
    s->count += count;
    return BPE_OK;
}

/* Look up a token, whose count is its id, or that of a special token. Returns 0 if there is none. */
static inline int find_id(const word_table *w, const uint8_t *token, size_t length, uint32_t *id)
{
    uint64_t key[2];
    make_key(&w->table, token, length, key);
    const slot *s = find_word(w, key, token);
    *id = (uint32_t)s->count;
    return s->key[1] != 0;
}

/* ---- batches of words -------------------------------------------------------------------------------------------- */

/* A batch of words. When a word is added, its key is made, and its slot is prefetched. When the batch is full, most
   slots have arrived, and a sink looks all of them up. A sink that returns an error ends the scan. For encoding, there are
   marks between the words, with a length of 0: key[0] is 1 + the index of a special token, or 0 for the end of a text; the
   last byte of key[1] is 0, as no word's is. */
typedef struct {
    uint64_t key[2];
    const uint8_t *word; /* in the text */
    size_t home;         /* a hint: the table may have grown since, so sinks compare the key */
} pending;

typedef struct batch {
    const uint8_t *text, *limit;       /* the next word; the end of all texts */
    const struct bpe_rules *rules;     /* of bpe_words.c */
    const struct bpe_pattern *pattern; /* whose words these are; scan_texts writes it, and */
    const uint16_t *rows;              /* those of its machine */
    const table *table;
    int (*sink)(void *state, const pending *words, size_t n);
    void *state;
    int has_marks;
    int (*add_long)(struct batch *b, const uint8_t *word, size_t length); /* in pieces; NULL for counting */
    pending *words;                                                       /* BATCH_ROOM of them */
    size_t n;
} batch;

static int end_batch(batch *b)
{
    const size_t n = b->n;
    b->n = 0;
    return b->sink(b->state, b->words, n);
}

/* Make the key of a word, with `piece` in its last byte, and prefetch its slot. `readable` has the bytes of the word and
   can be read for 16 bytes. */
ALWAYS_INLINE void prepare(pending *p, const table *t, const uint8_t *word, const uint8_t *readable, size_t length,
                           unsigned piece)
{
    if (LIKELY(length <= INLINE_MAX))
        short_key(readable, length, p->key);
    else
        long_key(t, word, length, p->key);
    p->key[1] |= little((uint64_t)piece << 56);
    p->word = word;
    p->home = home_of(t, p->key[0], p->key[1]);
    PREFETCH(t->slots + p->home);
}
