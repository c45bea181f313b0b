/*
 * bpe_encode.c: encoding text, with the ids of bpe.py (Part VI), as fast as the machine allows.
 *
 * It uses bpe_shared.c (keys, batches), the table of bpe_fast.c, and scan_texts of bpe_words.c, which gives it the words
 * of text. How they are found, it doesn't know: it hands the rules on. Read the interface first, then the rest in order:
 *
 *     bpe_encoder_new(ids, n_ids, tokens, lengths, 0, merges, n_merges, rules, special_ids, seed, &encoder);
 *     bpe_cache_new(encoder, &cache);                            one per thread
 *     bpe_encode(cache, texts, ends, n_texts, ids, NULL, NULL);  once per slice
 *
 * Of the three texts in bpe_shared.c, with a token for each word, it makes
 *     ids    low, _lower, newest      ends  2 2 3
 *
 * Encoding merges the pair of lowest rank, the leftmost of equal ones, until no pair has a rank. A distinct word is
 * merged once, and then cached. With ignore_merges, a word that is a token stays whole (encode_other). Long words beyond
 * ASCII are merged in pieces, which come back more often. Most of the time for a new word goes into looking up ranks, so
 * their table is compact, and the bytes of a character become its token at once if that is safe (see index_merges).
 *
 * MEMORY  16 or 20 bytes per merge, 43 to 85 per token, and 1 MB; up to 64 MB per cache, and 28 bytes for each byte of the
 *         longest word, while it is merged.
 */

/* ---- interface: build_ffi.py gives this part to cffi ------------------------------------------------------------- */

typedef struct bpe_encoder bpe_encoder; /* vocabulary and merges; never changes, so threads can share it */
typedef struct bpe_cache bpe_cache;     /* the ids of words that an encoder has met; each thread has one */

/* The vocabulary has n_ids tokens with these ids, first the 256 bytes, UINT32_MAX for a byte without a token. `tokens` has
   the bytes of all others, concatenated, and token_lengths the length of each. With ignore_merges, words that are among
   the first n_whole of these stay whole, whatever merges make of them. merges are rows of (left, right, new token) by
   rank, as indexes into ids; no pair is given twice, and no merge uses a byte without a token. special_ids are in the
   order of the special tokens of the rules. The rules, ids and special_ids have to stay as long as the encoder. */
int bpe_encoder_new(const uint32_t *ids, size_t n_ids, const uint8_t *tokens, const uint64_t *token_lengths,
                    size_t n_whole, const uint32_t *merges, size_t n_merges, const bpe_rules *rules,
                    const uint32_t *special_ids, const uint64_t seed[2], bpe_encoder **encoder);
void bpe_encoder_free(bpe_encoder *e);

/* Find the ids of merges (left, right, new token). `tokens` are n lines: names, which have these ids. `merges` are n_merges
   lines of two names with a space between; the search overwrites them. Returns BPE_NO_TOKEN if a name isn't there. */
int bpe_find_merges(const uint8_t *tokens, const uint32_t *ids, size_t n, const uint64_t seed[2], uint8_t *merges,
                    size_t n_merges, uint32_t *rows);

/* Find all ways to make one of n tokens, concatenated, of two others. merges gets rows of ids, too, in the order of the
   tokens, and then of left ids; there must be room for as many rows as the tokens have bytes. */
int bpe_find_splits(const uint8_t *tokens, const uint64_t *lengths, const uint32_t *ids, size_t n, const uint64_t seed[2],
                    uint32_t *merges, size_t *n_merges);

/* Replace each of n ids by numbers[id]. */
void bpe_replace_ids(uint32_t *ids, size_t n, const uint32_t *numbers);

/* Create a cache of words for an encoder, which has to stay as long as the cache. */
int bpe_cache_new(const bpe_encoder *e, bpe_cache **cache);
void bpe_cache_free(bpe_cache *c);

/* Encode n texts, concatenated. ends[i] is the end of text i, and becomes the end of its ids. There must be room for three
   ids more than the texts have bytes. If `narrow` isn't NULL, the low 16 bits of the ids are written there, too, which may
   be the same memory as `ids`. After BPE_BAD_UTF8 and BPE_NO_TOKEN, ends[0] is the offset of a byte of the first text with
   an error: for BPE_NO_TOKEN, the first byte without a token. If left_out isn't NULL, such bytes are no error: they are
   left out of their words, and *left_out is their number. The cache can be used again after any error. One word of 40 MB
   takes about 10 s. */
int bpe_encode(bpe_cache *c, const uint8_t *texts, uint64_t *ends, size_t n, uint32_t *ids, uint16_t *narrow,
               uint64_t *left_out);

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

#ifndef CACHE_WORDS
#define CACHE_WORDS ((size_t)3 << 18) /* in a cache at most: 32 MB of slots, */
#endif
#define CACHE_BYTES (CACHE_WORDS * 42) /* and as much for its arena */

/* In a cache, the ids of a word and their number are in its slot, in the place of where and count. If they don't fit, they
   are in the arena, after the word, and the slot has its place there, and their number with the bit IN_ARENA. */
enum { IDS_IN_SLOT = 3 };
#define IN_ARENA ((uint32_t)1 << 31)

static inline void *ids_in(const slot *s) { return (uint8_t *)s + offsetof(slot, where); }

static inline uint32_t n_ids_in(const slot *s)
{
    uint32_t n;
    memcpy(&n, (const uint32_t *)ids_in(s) + IDS_IN_SLOT, sizeof n);
    return n;
}

/* ---- ids of tokens ------------------------------------------------------------------------------------------------- */

static size_t line_length(const uint8_t *line) { return strcspn((const char *)line, "\n"); }

/* Make a table {token: id}, without the empty token: its key would be that of an empty slot. No lengths: of lines. */
static int index_tokens(word_table *t, const uint8_t *token, const uint64_t *lengths, const uint32_t *ids, size_t n)
{
    TRY(make_room(&t->table, n));
    for (size_t i = 0; i < n; i++) {
        const size_t length = lengths ? (size_t)lengths[i] : line_length(token);
        uint64_t key[2];
        make_key(&t->table, token, length, key);
        if (length)
            TRY(put_word(t, key, token, ids[i]));
        token += length + !lengths;
    }
    return BPE_OK;
}

int bpe_find_merges(const uint8_t *tokens, const uint32_t *ids, size_t n, const uint64_t seed[2], uint8_t *merges,
                    size_t n_merges, uint32_t *rows)
{
    word_table t = {.table.seed = {seed[0], seed[1]}};
    int status = index_tokens(&t, tokens, NULL, ids, n);
    for (size_t i = 0; i < n_merges && status == BPE_OK; i++, rows += 3) {
        const size_t length = line_length(merges);
        const uint8_t *const space = memchr(merges, ' ', length);
        const size_t left = space ? (size_t)(space - merges) : 0;
        /* the left name, moved over the space, is beside the right one */
        if (!space || !find_id(&t, merges, left, rows) || !find_id(&t, space + 1, length - left - 1, rows + 1) ||
            !find_id(&t, memmove(merges + 1, merges, left), length - 1, rows + 2))
            status = BPE_NO_TOKEN;
        merges += length + 1;
    }
    free_words(&t);
    return status;
}

/* A place leaves two tokens only if it leaves lengths of tokens: then one token of 300 KB takes no longer than many. */
int bpe_find_splits(const uint8_t *tokens, const uint64_t *lengths, const uint32_t *ids, size_t n, const uint64_t seed[2],
                    uint32_t *merges, size_t *n_merges)
{
    word_table t = {.table.seed = {seed[0], seed[1]}};
    size_t longest = 0;
    for (size_t i = 0; i < n; i++)
        longest = lengths[i] > longest ? (size_t)lengths[i] : longest;
    uint8_t *occurs = allocate(longest + 1, 1); /* by length */
    int status = occurs ? index_tokens(&t, tokens, lengths, ids, n) : BPE_NO_MEMORY;
    for (size_t i = 0; i < n && status == BPE_OK; i++)
        occurs[lengths[i]] = 1;
    *n_merges = 0;
    for (size_t i = 0; i < n && status == BPE_OK; tokens += lengths[i], i++) {
        const size_t length = (size_t)lengths[i], first = *n_merges;
        for (size_t end = 1; end < length; end++) {
            uint32_t left, right, *row = merges + 3 * *n_merges;
            if (!occurs[end] || !occurs[length - end] || !find_id(&t, tokens, end, &left) ||
                !find_id(&t, tokens + end, length - end, &right))
                continue;
            for (; row > merges + 3 * first && row[-3] > left; row -= 3)
                memcpy(row, row - 3, 3 * sizeof *row);
            memcpy(row, (uint32_t[]){left, right, ids[i]}, 3 * sizeof *row);
            ++*n_merges;
        }
    }
    free(occurs);
    free_words(&t);
    return status;
}

void bpe_replace_ids(uint32_t *ids, size_t n, const uint32_t *numbers)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = numbers[ids[i]];
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

/* In this file, the id of a byte's token is the byte; the ids of tokens that merges make follow. */
enum { ID_BITS = 21, RANK_BITS = 22, BUCKET = 8, NO_RANK = 1 << RANK_BITS, NO_ID = (1 << ID_BITS) - 1 };

typedef struct { /* facts about a token so far; its bytes, if safe merges alone made it */
    uint8_t was_left, was_right, n_bytes, bytes[3];
} token_facts;

struct bpe_encoder {
    uint64_t *pairs; /* buckets of left id, right id, rank in 64 bits; all ones if empty */
    size_t n_buckets;
    uint32_t *made;          /* by rank: the token that the merge makes; NULL if each one makes 256 + its rank */
    const uint32_t *outside; /* the ids of the vocabulary; UINT32_MAX for a byte without a token */
    const uint32_t *special_ids;
    const bpe_rules *rules;
    word_table whole_words;       /* words that stay whole, with the id as the count */
    uint64_t seed[2];             /* of pairs, of this table and each cache: a word's key is made once for all of them */
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

/* the rank of a pair of units (see unit_at), of which a word consists before the first merge */
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
   Nor may an earlier merge use c, such as (x, c), which is possible if another merge makes c, too: with c there too soon,
   it could take x. */
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

/* Whether a unit has a token; if not, it may be left out, and the units around it are side by side. */
static inline int has_token(const bpe_encoder *e, uint32_t unit) { return e->outside[unit] != UINT32_MAX; }

static inline size_t neighbor_bit(const bpe_encoder *e, uint32_t a, uint32_t b)
{
    return (size_t)(fold(pair_bits(a, b) ^ e->seed[1], e->seed[0]) >> 44);
}

/* Whether a token may have unit b after unit a within it; if not, a word can be cut between them. Where 天气, 今天 and 很好
   are tokens, and 气很 is in none,
       今天天气很好    is     今天 | 天气 | 很好    or rather    今天天气 | 很好    if 天天 is in a token
   Whatever merges make has whole units, since safe merges can come first, and a token that reached across the place would
   have both units within it. So each merge is on one side, and comes in the same order with and without the other. The
   units of a token are those of any word around it: UTF-8 shows where a character begins. A bit can be set by other units
   with the same hash; then the piece is longer, and its ids are the same. */
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
    free_words(&e->whole_words);
    free(e);
}

int bpe_encoder_new(const uint32_t *ids, size_t n_ids, const uint8_t *tokens, const uint64_t *token_lengths,
                    size_t n_whole, const uint32_t *merges, size_t n_merges, const bpe_rules *rules,
                    const uint32_t *special_ids, const uint64_t seed[2], bpe_encoder **encoder)
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
    e->outside = ids;
    e->special_ids = special_ids;
    memcpy(e->seed, seed, sizeof e->seed);
    TRY(new_table(&e->whole_words.table, e->seed));
    TRY(index_tokens(&e->whole_words, tokens, token_lengths, ids + 256, n_whole));
    e->n_buckets = n_merges * 2 / BUCKET + 1; /* half full */
    e->pairs = allocate(e->n_buckets, BUCKET * sizeof *e->pairs);
    e->made = in_order ? NULL : allocate(n_merges, sizeof *e->made);
    facts = allocate(n_ids, sizeof *facts);
    int complete = e->pairs && (e->made || in_order) && facts;
    if (complete)
        index_merges(e, merges, (uint32_t)n_merges, facts);
    index_neighbors(e, tokens, token_lengths, n_ids - 256);
    free(facts);
    return complete ? BPE_OK : BPE_NO_MEMORY;
}

/* ---- one word ---------------------------------------------------------------------------------------------------- */

enum { FEW = 16 }; /* ids that merge_few can merge */

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
    uint64_t *tree;
    place *p;
    if (*n <= FEW) {
        *n = merge_few(e, ids, *n);
        return BPE_OK;
    }
    if (places >= UINT32_MAX)
        return BPE_LONG_WORD;
    if (!(tree = allocate(places, 2 * sizeof *tree + sizeof *p)))
        return BPE_NO_MEMORY;
    p = (place *)(tree + 2 * places);
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
    free(tree);
    return BPE_OK;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

struct bpe_cache {
    word_table words;
    const bpe_encoder *encoder;
    uint32_t *ids, *out;     /* the first id; the next one */
    uint64_t *end;           /* of the ids of this text */
    const uint8_t *no_token; /* the byte without a token, after BPE_NO_TOKEN */
    uint64_t *left_out;      /* the number of such bytes; NULL: they are an error */
};

void bpe_cache_free(bpe_cache *c)
{
    if (c)
        free_words(&c->words);
    free(c);
}

int bpe_cache_new(const bpe_encoder *e, bpe_cache **cache)
{
    bpe_cache *c = *cache = calloc(1, sizeof *c);
    if (!c)
        return BPE_NO_MEMORY;
    c->encoder = e;
    return new_table(&c->words.table, e->seed);
}

/* Encode a word, and write the number of its ids. Its bytes without a token are left out, or the first one is an error. */
static int merge_word(bpe_cache *c, const uint8_t *word, size_t length, size_t *n)
{
    const bpe_encoder *const e = c->encoder;
    const uint8_t *const end = word + length;
    uint32_t unit, *const ids = c->out;
    *n = 0;
    while (word < end) {
        word += unit_at(e, word, end, &unit);
        if (has_token(e, unit))
            ids[(*n)++] = unit;
        else if (c->left_out)
            ++*c->left_out;
        else {
            c->no_token = word - 1;
            return BPE_NO_TOKEN;
        }
    }
    TRY(merge_ids(e, ids, n));
    for (size_t i = 0; i < *n; i++)
        ids[i] = e->outside[ids[i]];
    return BPE_OK;
}

/* Cache ids, if there is memory: in the slot, or the word and its ids in the arena. At most half of the slots are used, as
   long as the table can grow: then most words are in their home slots. A table that is full is emptied. */
static void keep_ids(word_table *w, const pending *p, const uint32_t *ids, size_t n)
{
    table *const t = &w->table;
    const size_t length = length_of(p->key);
    const int fits = length <= INLINE_MAX && n <= IDS_IN_SLOT;
    const size_t n_bytes = fits ? 0 : length + n * sizeof *ids;
    const uint64_t room = lesser(t->used + t->used / 2 + 1, CACHE_WORDS); /* make_room fills 3/4 of the slots */
    const uint32_t n_in_slot = fits ? (uint32_t)n : (uint32_t)n | IN_ARENA;
    slot *s;
    if (n_bytes > CACHE_BYTES)
        return;
    if (t->used >= CACHE_WORDS || w->arena_size + n_bytes > CACHE_BYTES || make_room(t, room) != BPE_OK) {
        memset(t->slots, 0, t->capacity * sizeof *t->slots);
        t->used = w->arena_size = 0;
    }
    if (n_bytes && (keep_bytes(w, p->word, length) != BPE_OK || keep_bytes(w, ids, n * sizeof *ids) != BPE_OK))
        return;
    s = find_word(w, p->key, p->word);
    use_slot(t, s, p->key);
    if (fits)
        memcpy(ids_in(s), ids, n * sizeof *ids);
    else
        s->where = w->arena_size - n_bytes;
    memcpy((uint32_t *)ids_in(s) + IDS_IN_SLOT, &n_in_slot, sizeof n_in_slot);
}

/* Encode a word whose ids are not in its home slot, or do what a mark says. */
static NOINLINE int encode_other(bpe_cache *c, const pending *p)
{
    const size_t length = length_of(p->key);
    const uint64_t left_out = c->left_out ? *c->left_out : 0;
    const slot *s;
    size_t n = 1;
    if (!length) { /* a mark */
        if (p->key[0])
            *c->out++ = c->encoder->special_ids[p->key[0] - 1];
        else
            *c->end++ = (uint64_t)(c->out - c->ids);
        return BPE_OK;
    }
    s = find_word(&c->words, p->key, p->word);
    if (s->key[1]) {
        n = n_ids_in(s) & ~IN_ARENA;
        memcpy(c->out, n_ids_in(s) & IN_ARENA ? c->words.arena + s->where + length : ids_in(s), n * sizeof *c->out);
    } else {
        s = find_word(&c->encoder->whole_words, p->key, p->word); /* no piece: see prepare */
        if (s->key[1])
            *c->out = (uint32_t)s->count;
        else
            TRY(merge_word(c, p->word, length, &n));
        if (!c->left_out || *c->left_out == left_out) /* a word without some of its bytes is counted each time */
            keep_ids(&c->words, p, c->out, n);
    }
    c->out += n;
    return BPE_OK;
}

/* the sink that encodes */
static int encode_batch(void *state, const pending *words, size_t n)
{
    bpe_cache *c = state;
    const slot *slots = c->words.table.slots; /* in a register, as `out` is: for C, each copy of ids might change c */
    uint32_t *out = c->out;
    for (const pending *p = words; p < words + n; p++) {
        const slot *s = slots + p->home;
        if (!LIKELY(has_key(s, p->key)) && s->key[1]) /* another word has its home, so it may be in the next slot */
            s = slots + ((p->home + 1) & (c->words.table.capacity - 1));
        if (LIKELY(has_key(s, p->key) && n_ids_in(s) <= IDS_IN_SLOT)) {
            memcpy(out, ids_in(s), (IDS_IN_SLOT + 1) * sizeof *out); /* always all: this avoids a loop */
            out += n_ids_in(s);
        } else {
            c->out = out;
            TRY(encode_other(c, p));
            out = c->out;
            slots = c->words.table.slots;
        }
    }
    c->out = out;
    return BPE_OK;
}

/* Add a long word to a batch in pieces, which come back more often than it does, unless it stays whole. A piece has other
   keys than words. */
static int add_pieces(batch *b, const uint8_t *word, size_t length)
{
    const bpe_encoder *const e = ((bpe_cache *)b->state)->encoder;
    const uint8_t *const end = word + length, *at, *cuts[BATCH + 1];
    uint32_t unit, before;
    const int is_whole = e->whole_words.table.used && find_id(&e->whole_words, word, length, &unit);
    for (at = is_whole ? end : word + unit_at(e, word, end, &unit); word < end;) {
        size_t n = 0;
        while (at < end && n < BATCH) { /* without a branch for each cut, which is hard to predict */
            before = unit;
            cuts[n] = at;
            at += unit_at(e, at, end, &unit);
            n += !are_neighbors(e, before, unit) && has_token(e, before) && has_token(e, unit);
        }
        if (at == end)
            cuts[n++] = end;
        for (size_t i = 0; i < n; word = cuts[i++]) {
            uint8_t copy[INLINE_MAX + 1] = {0};
            const size_t size = (size_t)(cuts[i] - word);
            const int is_readable = size > INLINE_MAX || b->limit - word > INLINE_MAX;
            if (b->n >= BATCH)
                TRY(end_batch(b));
            prepare(b->words + b->n++, b->table, word, is_readable ? word : memcpy(copy, word, size), size,
                    is_whole ? 0 : PIECE);
        }
    }
    return BPE_OK;
}

int bpe_encode(bpe_cache *c, const uint8_t *texts, uint64_t *ends, size_t n, uint32_t *ids, uint16_t *narrow,
               uint64_t *left_out)
{
    const size_t length = n ? (size_t)ends[n - 1] : 0;
    const bpe_rules *const rules = c->encoder->rules;
    pending words[BATCH_ROOM];
    batch b = {.text = texts, .limit = texts + length, .rules = rules, .table = &c->words.table, .sink = encode_batch,
               .state = c, .has_marks = 1, .add_long = add_pieces, .words = words};
    int status;
    c->ids = c->out = ids;
    c->left_out = left_out;
    if (left_out)
        *left_out = 0;
    c->end = ends;
    (void)make_room(&c->words.table, lesser(length / BYTES_PER_WORD * 2, FITTED_WORDS)); /* or it stays as it is */
    status = scan_texts(&b, rules->pattern, rules->rows, ends, n);
    if (status == BPE_NO_TOKEN || status == BPE_BAD_UTF8)
        ends[0] = (uint64_t)((status == BPE_NO_TOKEN ? c->no_token : b.text) - texts);
    for (size_t i = 0; narrow && i < (size_t)(c->out - ids); i++)
        narrow[i] = (uint16_t)ids[i];
    return status;
}
