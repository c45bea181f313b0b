/*
 * bpe_extend.c: learning more tokens for an old vocabulary. The merge loop is that of bpe_fast.c; here, its words begin
 * with the tokens that the old vocabulary gives them.
 *
 * An example: `low` 5 times, which an old vocabulary with the token `lo` encodes as lo w:
 *
 *     bpe_learner_extend((uint32_t[]){256, 'w'}, (uint64_t[]){2}, (uint64_t[]){3}, (uint64_t[]){5}, 1,
 *                        "lo", (uint64_t[]){2}, 1, 10000, 1, seed, &learner);
 *
 * In the array, a first token is as after a merge: its id is in its first and in its last slot. The first pairs are
 * summed up in a table of their own, since there may be many kinds.
 */

/* ---- interface --------------------------------------------------------------------------------------------------- */

/* Take n different words by descending count, like bpe_learner_new: the ids of all words, concatenated; how many each one
   has, its length in bytes, and its count. There are n_tokens first tokens longer than a byte, in ascending order of
   their bytes, with the ids from 256 on. A pair with the bytes of one of them is never merged. So a word may stay
   divided, and BPE_DONE come too early, unless merges_wanted is larger than n: a learner with a larger one makes the same
   merges, and the others. */
int bpe_learner_extend(const uint32_t *ids, const uint64_t *n_ids, const uint64_t *lengths, const uint64_t *counts,
                       size_t n, const uint8_t *tokens, const uint64_t *token_lengths, size_t n_tokens,
                       uint64_t merges_wanted, uint64_t min_frequency, const uint64_t seed[2], bpe_learner **learner);

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

typedef struct {
    bpe_learner learner;
    size_t n_first; /* of its tokens, first ones; the longer ones, from ROWS on, are sorted */
} extension;

static int add_longer_tokens(bpe_learner *l, const uint8_t *tokens, const uint64_t *lengths, size_t n)
{
    for (size_t i = 0; i < n; tokens += lengths[i++]) {
        if (lengths[i] >= UINT32_MAX || n >= UINT32_MAX / 2)
            return BPE_TOO_MANY_WORDS;
        TRY(grow(&l->bytes, &l->bytes_capacity, l->n_bytes + (size_t)lengths[i], 1));
        memcpy(l->bytes + l->n_bytes, tokens, (size_t)lengths[i]);
        TRY(add_token(l, (size_t)lengths[i]));
        assert(i == 0 || compare_tokens(l, (uint32_t)l->n_tokens - 2, (uint32_t)l->n_tokens - 1) < 0);
    }
    return BPE_OK;
}

/* Tell if these are the bytes of a longer first token. */
static int is_first_token(const bpe_learner *l, const uint8_t *bytes, size_t length)
{
    size_t low = ROWS, high = ((const extension *)l)->n_first;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const token_info *token = l->tokens + middle;
        const int order = compare_bytes(l->bytes + token->where, token->length, bytes, length);
        if (!order)
            return 1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Write words into the array, except those of a single token, which have no pairs: their length is 0 here. */
static int take_ids(bpe_learner *l, const uint32_t *ids, const uint64_t *n_ids, const uint64_t *lengths,
                    const uint64_t *counts, size_t n)
{
    uint64_t *const here = allocate(n, sizeof *here);
    int status;
    if (!here)
        return BPE_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        here[i] = n_ids[i] > 1 ? lengths[i] : 0;
    status = new_array(l, here, counts, n);
    for (size_t i = 0; i < n && status == BPE_OK; ids += n_ids[i++]) {
        size_t p = here[i] ? next_word(l, here[i], counts[i]) : 0;
        for (size_t k = 0; here[i] && k < n_ids[i]; k++) {
            l->seq[p] = ids[k] + FIRST_ID;
            p += l->tokens[ids[k] + FIRST_ID].length;
            l->seq[p - 1] = ids[k] + FIRST_ID;
        }
    }
    free(here);
    return status;
}

/* The place after the token or the empty slot at p. */
static inline size_t place_after(const bpe_learner *l, size_t p)
{
    return p + (l->seq[p] == NO_TOKEN ? 1 : l->tokens[l->seq[p]].length);
}

/* Find the slot of the pair of the tokens at p and at `next`, or the empty slot for it. */
static inline slot *find_sum(const bpe_learner *l, const table *sums, size_t p, size_t next)
{
    return find_slot(sums, pair_key(l->seq[p], l->seq[next]), 1);
}

/* Add all pairs to the learner's table, and list their places. They are summed up in another table first; then each one's
   `where` is the number of its places, and later the next place in its list, or 0. */
static int index_pairs(bpe_learner *l, table *sums)
{
    TRY(make_room(sums, 0)); /* there may be no word */
    for (size_t p = BLOCK, next; p < l->n_slots; p = next) {
        slot *sum;
        next = place_after(l, p);
        TRY(make_room(sums, (uint64_t)sums->used + 1));
        sum = find_sum(l, sums, p, next);
        if (!sum->key[1])
            use_slot(sums, sum, (uint64_t[2]){pair_key(l->seq[p], l->seq[next]), 1});
        sum->where++;
        sum->count += l->counts[p / BLOCK];
    }
    TRY(make_room_for_lists(l, l->n_slots + PLACES * sums->used));
    for (slot *s = sums->slots; s < sums->slots + sums->capacity; s++) {
        new_pair sum = {s->count, 0, (uint32_t)s->where};
        TRY(add_pair(l, s->key[0], &sum));
        s->where = sum.list;
    }
    for (size_t p = BLOCK, next; p < l->n_slots; p = next) {
        slot *const sum = find_sum(l, sums, p, next = place_after(l, p));
        if (sum->where)
            l->lists[sum->where++] = (uint32_t)p;
    }
    free(l->byte_pairs); /* so that bpe_learner_run does not index them again */
    l->byte_pairs = NULL;
    return BPE_OK;
}

int bpe_learner_extend(const uint32_t *ids, const uint64_t *n_ids, const uint64_t *lengths, const uint64_t *counts,
                       size_t n, const uint8_t *tokens, const uint64_t *token_lengths, size_t n_tokens,
                       uint64_t merges_wanted, uint64_t min_frequency, const uint64_t seed[2], bpe_learner **learner)
{
    extension *const x = calloc(1, sizeof *x);
    bpe_learner *const l = *learner = (bpe_learner *)x;
    /* not the seed of l->pairs, to which index_pairs adds keys in the order of this table: with one seed, they collide */
    table sums = {.seed = {seed[1], seed[0]}};
    if (!l)
        return BPE_NO_MEMORY;
    l->forbids = is_first_token;
    l->status = begin_learner(l, merges_wanted, min_frequency, seed);
    if (l->status == BPE_OK)
        l->status = add_longer_tokens(l, tokens, token_lengths, n_tokens);
    x->n_first = l->n_tokens;
    if (l->status == BPE_OK)
        l->status = take_ids(l, ids, n_ids, lengths, counts, n);
    if (l->status == BPE_OK)
        l->status = index_pairs(l, &sums);
    free_table(&sums);
    return l->status;
}
