/*
 * Runs the C engine by itself, for the sanitizers: write build_ffi.source() to full.c, then compile this with
 * -DSOURCE='"full.c"'. It does four things, most of them with the text of a file:
 *
 *   driver alloc FILE    a small training and encoding, in which every single allocation fails once, and all from each
 *                        one on
 *   driver threads FILE  count it with four threads, merge, learn, encode; compare with one thread
 *   driver random N      N random texts, trainings and encodings, valid and not
 *   driver results FILE  a checksum of merges, counts and ids for each named pattern, to compare systems
 */
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long calls, fail_from = -1, fail_to = -1;

static int fails(void)
{
    return fail_from >= 0 && ++calls > fail_from && calls <= fail_to;
}

static void *test_malloc(size_t size) { return fails() ? NULL : malloc(size); }
static void *test_calloc(size_t n, size_t size) { return fails() ? NULL : calloc(n, size); }
static void *test_realloc(void *block, size_t size) { return fails() ? NULL : realloc(block, size); }
#ifndef _WIN32 /* which has no such function */
static void *test_aligned(size_t align, size_t size) { return fails() ? NULL : aligned_alloc(align, size); }
#endif

#define malloc test_malloc
#define calloc test_calloc
#define realloc test_realloc
#define aligned_alloc test_aligned
#include SOURCE
#undef malloc
#undef calloc
#undef realloc
#undef aligned_alloc

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "driver.c:%d: %s\n", __LINE__, #condition);                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const uint8_t special_bytes[] = "<|endoftext|><|";
static const size_t special_lengths[] = {13, 2};
static const uint64_t seed[2] = {0x5851f42d4c957f2du, 0x14057b7ef767814fu};
static const bpe_pattern *pattern = &bpe_patterns[0];

static int new_rules(bpe_rules **rules)
{
    return bpe_rules_new(special_bytes, special_lengths, 2, pattern, seed, rules);
}

/* count the words of one text */
static int scan(bpe_words *words, const bpe_rules *rules, const uint8_t *text, size_t length)
{
    const uint64_t end = length;
    return bpe_words_scan(words, rules, text, &end, 1);
}

/* go on, unless a step before this one failed */
#define THEN(call)                                                                                                     \
    if (status == BPE_OK)                                                                                              \
    status = (call)

static uint64_t state = 1;

/* a random number below n */
static size_t below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % n;
}

/* n words of this length, each a space and random letters */
static uint8_t *random_words(size_t n, size_t length)
{
    uint8_t *text = malloc(n * length);
    CHECK(text);
    for (size_t i = 0; i < n * length; i++)
        text[i] = i % length ? (uint8_t)('a' + below(16)) : ' ';
    return text;
}

enum { MOST = 2000 };

typedef struct { /* what training gave */
    uint32_t rows[3 * MOST];
    size_t n;
    uint64_t sum;
} merge_list;

typedef struct { /* what a run works on, in a thread of its own or not */
    bpe_words *words;
    const bpe_rules *rules;
    const uint8_t *text;
    size_t length;
    const bpe_encoder *encoder;
    uint64_t sum; /* of its results */
} job;

/* hand the words over to a learner */
static int new_learner(bpe_words *words, uint64_t merges, bpe_learner **learner)
{
    bpe_totals totals;
    (void)bpe_words_get(words, 1, NULL, NULL, NULL, &totals);
    uint8_t *bytes = malloc(totals.bytes + 1);
    uint64_t *lengths = malloc((totals.words + 1) * sizeof *lengths);
    uint64_t *counts = malloc((totals.words + 1) * sizeof *counts);
    CHECK(bytes && lengths && counts);
    *learner = NULL;
    int status = bpe_words_get(words, 1, bytes, lengths, counts, &totals);
    (void)finish_words(words, BPE_OVERFLOW); /* as after an error */
    if (status == BPE_OK)
        status = bpe_learner_new(bytes, lengths, counts, totals.words, merges, 1, seed, learner);
    free(bytes);
    free(lengths);
    free(counts);
    return status;
}

/* train to `merges` merges, at most MOST, and a checksum of them */
static int train(bpe_words *words, size_t merges, merge_list *list)
{
    size_t made;
    bpe_learner *learner;
    bpe_merge batch[64];
    int status;
    list->sum = list->n = 0;
    status = new_learner(words, merges, &learner);
    while (status == BPE_OK && list->n < merges) {
        status = bpe_learner_run(learner, batch, merges - list->n < 64 ? merges - list->n : 64, &made);
        for (size_t i = 0; i < made; i++) {
            uint32_t *row = list->rows + 3 * list->n++;
            row[0] = batch[i].left;
            row[1] = batch[i].right;
            row[2] = 255 + (uint32_t)list->n;
            list->sum = list->sum * 31 + batch[i].left * 7 + batch[i].right * 3 + batch[i].count + batch[i].replaced;
        }
    }
    if (learner && status != BPE_OK) /* nothing more can be learned, or nothing at all */
        CHECK(bpe_learner_run(learner, batch, 1, &made) == status && !made);
    status = status == BPE_DONE ? BPE_OK : status;
    bpe_learner_free(learner);
    bpe_totals totals;
    CHECK(bpe_words_get(words, 1, NULL, NULL, NULL, &totals) == BPE_USED_UP); /* as every function has to notice */
    CHECK(!totals.words && !totals.bytes && !totals.all_words && !totals.all_bytes);
    static const uint8_t bytes[100];
    CHECK(scan(words, NULL, bytes, 100) == BPE_USED_UP);
    CHECK(bpe_words_put(words, bytes, NULL, NULL, 1) == BPE_USED_UP);
    return status;
}

/* the bytes of all tokens longer than a byte, each made of its two parts, concatenated; token[i] points to those of i */
static uint8_t *bytes_of_tokens(const merge_list *list, const uint8_t **token, uint64_t *lengths)
{
    uint64_t room = 0;
    for (unsigned i = 0; i < 256 + list->n; i++) {
        lengths[i] = i < 256 ? 1 : lengths[list->rows[3 * (i - 256)]] + lengths[list->rows[3 * (i - 256) + 1]];
        room += lengths[i];
    }
    uint8_t *const all = (malloc)(room), *next = all;
    CHECK(all);
    for (unsigned i = 0; i < 256 + list->n; next += lengths[i++]) {
        token[i] = next;
        if (i < 256) {
            *next = (uint8_t)i;
            continue;
        }
        const uint32_t left = list->rows[3 * (i - 256)], right = list->rows[3 * (i - 256) + 1];
        memcpy(next, token[left], lengths[left]);
        memcpy(next + lengths[left], token[right], lengths[right]);
    }
    return all;
}

static int new_encoder(const merge_list *list, const bpe_rules *rules, bpe_encoder **encoder)
{
    static const uint32_t special_ids[] = {70000, 70001};
    static uint32_t ids[256 + MOST]; /* the same in each call */
    uint64_t lengths[256 + MOST];
    const uint8_t *token[256 + MOST];
    int status;
    for (unsigned i = 0; i < 256 + list->n; i++)
        ids[i] = i == 1 ? UINT32_MAX : i; /* a byte without a token; the texts have none */
    uint8_t *const all = bytes_of_tokens(list, token, lengths);
    /* each token is made by its merges, so that staying whole changes nothing */
    status = bpe_encoder_new(ids, 256 + list->n, all + 256, lengths + 256, list->n % 2 ? list->n : 0, list->rows,
                             list->n, rules, special_ids, seed, encoder);
    free(all);
    return status;
}

/* write a name of bytes, in which each is two letters, and the byte that comes after it; return the end */
static uint8_t *put_name(uint8_t *at, const uint8_t *bytes, uint64_t length, uint8_t after)
{
    for (uint64_t i = 0; i < length; i++) {
        *at++ = (uint8_t)('A' + bytes[i] / 16);
        *at++ = (uint8_t)('A' + bytes[i] % 16);
    }
    *at++ = after;
    return at;
}

/* find the merges, by the names of their tokens, and all splits of each token, among which is its merge */
static int find_ids(const merge_list *list)
{
    static uint32_t merges[3 * MOST];
    uint32_t ids[256 + MOST];
    uint64_t lengths[256 + MOST], room = 0;
    const uint8_t *token[256 + MOST];
    const size_t n = list->n, n_ids = 256 + n;
    size_t n_splits = 0, found = 0;
    uint8_t *const all = bytes_of_tokens(list, token, lengths);
    for (unsigned i = 0; i < n_ids; room += lengths[i++])
        ids[i] = i;
    uint32_t *const splits = (malloc)(3 * room * sizeof *splits);
    uint8_t *const names = (malloc)(2 * room + n_ids), *const lines = (malloc)(2 * room + n_ids), *at = names;
    CHECK(splits && names && lines);
    for (unsigned i = 0; i < n_ids; i++)
        at = put_name(at, token[i], lengths[i], '\n');
    int status = BPE_OK;
    for (size_t missing = 0; missing < 2 && status == BPE_OK && n; missing++) { /* then without the last token */
        at = lines;
        for (const uint32_t *row = list->rows; row < list->rows + 3 * n; row += 3) {
            at = put_name(at, token[row[0]], lengths[row[0]], ' ');
            at = put_name(at, token[row[1]], lengths[row[1]], '\n');
        }
        status = bpe_find_merges(names, ids, n_ids - missing, seed, lines, n, merges);
        CHECK(status != BPE_OK || (!missing && !memcmp(merges, list->rows, 3 * n * sizeof *merges)));
    }
    free(names);
    free(lines);
    if (status == BPE_NO_TOKEN || status == BPE_OK)
        status = bpe_find_splits(all, lengths, ids, n_ids, seed, splits, &n_splits);
    for (size_t i = 0; i < n_splits && status == BPE_OK; i++) {
        const uint32_t *row = splits + 3 * i;
        CHECK(lengths[row[0]] + lengths[row[1]] == lengths[row[2]]);
        CHECK(!i || row[-1] < row[2] || (row[-1] == row[2] && row[-3] < row[0]));
        found += row[2] >= 256 && !memcmp(row, list->rows + 3 * (row[2] - 256), 3 * sizeof *row);
    }
    CHECK(status != BPE_OK || found == n);
    free(splits);
    free(all);
    return status;
}

/* encode one text */
static int encode_text(bpe_cache *c, const uint8_t *text, size_t length, uint32_t *ids, uint16_t *narrow, size_t *n)
{
    uint64_t end = length;
    const int status = bpe_encode(c, text, &end, 1, ids, narrow, NULL);
    *n = (size_t)end;
    return status;
}

/* encode once into a block of exactly the size that is promised, so that a write after it is seen */
static int encode_once(bpe_cache *c, const uint8_t *text, size_t length, size_t *n, uint64_t *sum)
{
    uint32_t *ids = malloc((length + 3) * sizeof *ids);
    int status;
    CHECK(ids);
    status = encode_text(c, text, length, ids, NULL, n);
    CHECK(c->words.table.used <= CACHE_WORDS && c->words.arena_size <= CACHE_BYTES);
    CHECK(2 * c->words.table.used <= c->words.table.capacity || c->words.table.capacity / 4 * 3 >= CACHE_WORDS); /* half full */
    *sum = 0;
    for (size_t i = 0; i < *n && status == BPE_OK; i++)
        *sum = *sum * 31 + ids[i];
    if (status == BPE_OK) {
        uint16_t *narrow = malloc((length + 2) * sizeof *narrow);
        uint64_t narrow_sum = 0, low_bits = 0;
        CHECK(narrow);
        for (size_t i = 0; i < *n; i++)
            low_bits = low_bits * 31 + (uint16_t)ids[i];
        status = encode_text(c, text, length, ids, narrow, n);
        for (size_t i = 0; i < *n && status == BPE_OK; i++)
            narrow_sum = narrow_sum * 31 + narrow[i];
        CHECK(status != BPE_OK || narrow_sum == low_bits);
        free(narrow);
    }
    free(ids);
    return status;
}

/* encode twice, the second time with cached words; after an error, all works again if memory is back */
static int encode(job *j)
{
    bpe_cache *c = NULL;
    size_t n[2];
    uint64_t sums[2] = {0};
    int status = bpe_cache_new(j->encoder, &c);
    const int created = status == BPE_OK;
    for (int round = 0; round < 2; round++)
        THEN(encode_once(c, j->text, j->length, n + round, sums + round));
    const long from = fail_from;
    if (from >= 0) /* not in threads */
        fail_from = -1;
    for (int round = 0; round < 2 && created && status == BPE_NO_MEMORY; round++) /* the cache is as good as new */
        CHECK(encode_once(c, j->text, j->length, n + round, sums + round) == BPE_OK);
    if (created && (status == BPE_OK || status == BPE_NO_MEMORY))
        CHECK(n[0] <= j->length && n[0] == n[1] && sums[0] == sums[1]);
    bpe_cache_free(c);
    if (from >= 0)
        fail_from = from;
    j->sum = sums[0];
    return status;
}

static const uint8_t *token_of_number[MOST]; /* for by_bytes() */
static uint64_t length_of_number[MOST];

static int by_bytes(const void *a, const void *b)
{
    const size_t i = *(const size_t *)a, k = *(const size_t *)b;
    const size_t length = length_of_number[i] < length_of_number[k] ? length_of_number[i] : length_of_number[k];
    const int order = memcmp(token_of_number[i], token_of_number[k], length);
    return order ? order : (length_of_number[i] > length_of_number[k]) - (length_of_number[i] < length_of_number[k]);
}

/* learn more tokens from pieces of the text, as the encoder encodes them; a checksum of the merges. Every fifth piece is
   given as bytes, as if the vocabulary could not merge it: then pairs have the bytes of an old token */
static int extend(const bpe_encoder *e, const merge_list *list, const uint8_t *text, size_t length, uint64_t *sum)
{
    enum { N = 1000 };
    static const uint8_t *token[256 + MOST];
    static uint64_t lengths[256 + MOST], sorted_lengths[MOST], n_ids[N], word_lengths[N], counts[N];
    static uint32_t number[256 + MOST];
    static size_t order[MOST];
    uint8_t *const all = bytes_of_tokens(list, token, lengths), *sorted = (malloc)(64 + list->n * 4096), *next = sorted;
    uint32_t *ids = (malloc)((length + 64) * sizeof *ids);
    bpe_cache *c;
    bpe_learner *learner = NULL;
    bpe_merge batch[64];
    size_t n = 0, n_all = 0, made;
    const long from = fail_from;
    CHECK(sorted && ids);
    fail_from = -1;
    for (size_t i = 0; i < list->n; i++) {
        token_of_number[i] = token[256 + i];
        length_of_number[i] = lengths[256 + i];
        order[i] = i;
    }
    qsort(order, list->n, sizeof *order, by_bytes);
    for (uint32_t i = 0; i < 256; i++)
        number[i] = i;
    for (size_t i = 0; i < list->n; next += sorted_lengths[i++]) {
        number[256 + order[i]] = 256 + (uint32_t)i;
        sorted_lengths[i] = length_of_number[order[i]];
        CHECK((size_t)(next - sorted) + sorted_lengths[i] <= 64 + list->n * 4096);
        memcpy(next, token_of_number[order[i]], sorted_lengths[i]);
    }
    CHECK(bpe_cache_new(e, &c) == BPE_OK);
    for (size_t start = 0, end; start < length && n < N; start = end) {
        size_t made_ids = 0;
        for (end = start + 5 + n % 11; end < length && (text[end] & 0xC0) == 0x80; end++)
            ;
        end = end < length ? end : length;
        if (n % 5 == 4)
            for (; made_ids < end - start; made_ids++)
                ids[n_all + made_ids] = text[start + made_ids];
        else {
            CHECK(encode_text(c, text + start, end - start, ids + n_all, NULL, &made_ids) == BPE_OK);
            size_t special = 0;
            for (size_t i = 0; i < made_ids; i++)
                special += ids[n_all + i] >= 70000;
            if (special)
                continue;
            for (size_t i = 0; i < made_ids; i++)
                ids[n_all + i] = number[ids[n_all + i]];
        }
        n_ids[n] = made_ids;
        word_lengths[n] = end - start;
        counts[n] = (N - n) / 7 + 1;
        n_all += made_ids;
        n++;
    }
    bpe_cache_free(c);
    uint32_t *exact = (malloc)(n_all * sizeof *exact + 1); /* so that a read after them is seen */
    CHECK(exact);
    memcpy(exact, ids, n_all * sizeof *exact);
    fail_from = from;

    *sum = 0;
    int status = bpe_learner_extend(exact, n_ids, word_lengths, counts, n, sorted, sorted_lengths, list->n,
                                    length % 2 ? 30 : N + 1, 1, seed, &learner);
    free(exact);
    free(sorted);
    while (status == BPE_OK) {
        status = bpe_learner_run(learner, batch, 64, &made);
        for (size_t i = 0; i < made; i++)
            *sum = *sum * 31 + batch[i].left * 7 + batch[i].right * 3 + batch[i].count + batch[i].replaced;
    }
    bpe_learner_free(learner);
    free(ids);
    free(all);
    return status == BPE_DONE ? BPE_OK : status;
}

/* put the words of one table that are not too rare into another one */
static int copy_words(bpe_words *to, const bpe_words *from, uint64_t min_count)
{
    bpe_totals totals;
    (void)bpe_words_get(from, min_count, NULL, NULL, NULL, &totals);
    uint8_t *bytes = malloc(totals.bytes + 1);
    uint64_t *lengths = malloc((totals.words + 1) * sizeof *lengths);
    uint64_t *counts = malloc((totals.words + 1) * sizeof *counts);
    CHECK(bytes && lengths && counts);
    int status = bpe_words_get(from, min_count, bytes, lengths, counts, &totals);
    if (status == BPE_OK)
        status = bpe_words_put(to, bytes, lengths, counts, totals.words);
    free(bytes);
    free(lengths);
    free(counts);
    return status;
}

/* after an error, the words are either all there, or used up; never some of them */
static void check_words(bpe_words *words, const bpe_rules *rules, const uint8_t *text, size_t length, int status)
{
    const long from = fail_from;
    bpe_totals before, after;
    fail_from = -1;
    (void)bpe_words_get(words, 1, NULL, NULL, NULL, &before);
    if (status != BPE_OK)
        CHECK(scan(words, rules, text, length) == BPE_USED_UP && !before.words && !before.all_words);
    else {
        CHECK(scan(words, rules, text, length) == BPE_OK);
        CHECK(bpe_words_get(words, 1, NULL, NULL, NULL, &after) == BPE_OK);
        CHECK(after.words == before.words && after.all_words == 2 * before.all_words);
    }
    fail_from = from;
}

/* count the special tokens of three texts, the second often empty, with rules that have no pattern; and byte by byte */
static int count_specials(const uint8_t *text, size_t length)
{
    const size_t n_tokens = sizeof special_lengths / sizeof *special_lengths;
    const uint64_t ends[] = {length / 3, length / 3 + length % 7 / 3, length};
    uint64_t expected = 0;
    bpe_rules *rules;
    const int status = bpe_rules_new(special_bytes, special_lengths, n_tokens, NULL, seed, &rules);
    for (size_t i = 0, at = 0; i < 3; i++)
        while (at < ends[i]) {
            size_t step = 1; /* the longer token is the first of the two */
            for (size_t k = 0, start = 0; k < n_tokens && step == 1; start += special_lengths[k++])
                if (ends[i] - at >= special_lengths[k] && !memcmp(text + at, special_bytes + start, special_lengths[k]))
                    step = special_lengths[k];
            expected += step > 1;
            at += step;
        }
    if (status == BPE_OK)
        CHECK(bpe_count_specials(rules, text, ends, 3) == expected);
    bpe_rules_free(rules);
    return status;
}

/* count special tokens, scan, copy into another table twice, train, find ids, encode, extend: all that allocates */
static int whole_run(job *j)
{
    static merge_list list;
    uint64_t extended = 0;
    bpe_encoder *encoder = NULL;
    bpe_words *words = NULL, *copy = NULL;
    bpe_rules *rules;
    int status = new_rules(&rules);
    list.sum = j->sum = 0;
    THEN(count_specials(j->text, j->length));
    THEN(bpe_words_new(seed, &words));
    THEN(bpe_words_new(seed, &copy));
    if (status == BPE_OK) {
        status = scan(words, rules, j->text, j->length);
        check_words(words, rules, j->text, j->length, status);
    }
    THEN(copy_words(copy, words, 1));
    THEN(copy_words(copy, words, 2));
    THEN(train(copy, 300, &list));
    THEN(find_ids(&list));
    THEN(new_encoder(&list, rules, &encoder));
    j->encoder = encoder;
    THEN(encode(j));
    THEN(extend(encoder, &list, j->text, j->length, &extended));
    j->sum += list.sum + extended;
    bpe_encoder_free(encoder);
    bpe_words_free(words);
    bpe_words_free(copy);
    bpe_rules_free(rules);
    return status;
}

/* run again and again: without the first allocation, without the second one, and so on, or also without all that follow it;
   with `rarely`, more and more of them are skipped */
static long fail_each(int (*run)(job *), job *j, int all, int rarely)
{
    long n = 0, n_failed = 0;
    CHECK(run(j) == BPE_OK);
    const uint64_t expected = j->sum;
    for (;; n += rarely ? n / 4 + 1 : 1) {
        calls = 0;
        fail_from = n;
        fail_to = all ? LONG_MAX : n + 1;
        const int status = run(j);
        if (calls <= n)
            break; /* it made fewer calls than that, so none failed */
        CHECK(status == BPE_NO_MEMORY || (status == BPE_OK && j->sum == expected)); /* some can be done without */
        n_failed += status != BPE_OK;
    }
    fail_from = -1;
    CHECK(n_failed && run(j) == BPE_OK && j->sum == expected);
    return n;
}

static void fail_everywhere(job *j)
{
    const long n = fail_each(whole_run, j, 0, 0);
    fail_each(whole_run, j, 1, 0);
    printf("alloc: %ld allocations failed one by one, and all after each\n", n);
}

static void *count_job(void *argument)
{
    job *j = argument;
    CHECK(scan(j->words, j->rules, j->text, j->length) == BPE_OK);
    return NULL;
}

static void *encode_job(void *argument)
{
    CHECK(encode(argument) == BPE_OK);
    return NULL;
}

static void in_threads(job *jobs, size_t n, void *(*work)(void *))
{
    pthread_t threads[16];
    for (size_t i = 0; i < n; i++)
        CHECK(!pthread_create(threads + i, NULL, work, jobs + i));
    for (size_t i = 0; i < n; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

static void count_in_threads(const job *all)
{
    enum { N = 4 };
    static merge_list one, four;
    job jobs[N];
    bpe_encoder *encoder;
    bpe_words *single;
    bpe_rules *rules;
    size_t start = 0;
    CHECK(new_rules(&rules) == BPE_OK && bpe_words_new(seed, &single) == BPE_OK);
    for (size_t i = 0; i < N; i++) {
        size_t end = all->length * (i + 1) / N;
        while (end < all->length && (all->text[end] & 0xC0) == 0x80)
            end++;
        jobs[i] = (job){.rules = rules, .text = all->text + start, .length = end - start};
        CHECK(bpe_words_new(seed, &jobs[i].words) == BPE_OK);
        CHECK(scan(single, rules, all->text + start, end - start) == BPE_OK);
        start = end;
    }
    in_threads(jobs, N, count_job);
    for (size_t i = 1; i < N; i++) {
        CHECK(copy_words(jobs[0].words, jobs[i].words, 1) == BPE_OK);
        bpe_words_free(jobs[i].words);
    }
    CHECK(train(single, MOST, &one) == BPE_OK && train(jobs[0].words, MOST, &four) == BPE_OK && one.sum == four.sum);
    bpe_words_free(single);
    bpe_words_free(jobs[0].words);
    CHECK(new_encoder(&one, rules, &encoder) == BPE_OK);
    for (size_t i = 0; i < N; i++)
        jobs[i].encoder = encoder;
    in_threads(jobs, N, encode_job);
    for (size_t i = 0; i < N; i++) {
        const uint64_t sum = jobs[i].sum;
        encode_job(jobs + i);
        CHECK(sum == jobs[i].sum);
    }
    bpe_encoder_free(encoder);
    bpe_rules_free(rules);
    printf("threads: four agree with one\n");
}

static void random_texts(long n)
{
    static const char *const parts[] = {"a", "b", "'", "ll", " ", "  ", "\n", "\xe5\xad\x97", "\xc3\xa9", "\xe3\x80\x80",
                                        "\xf0\x9f\x98\x80", "1", "A", "'S", "\r", "/", "\xc5\xbf", "\xcc\x81",
                                        "99999", "ABCABCABCABC", "'", "<|", "<|endoftext|>", "\xff", "\xe5", "aaaa",
                                        "."};
    for (long round = 0; round < n; round++) {
        uint8_t *text = malloc(1 << 12), *exact;
        size_t length = 0, n_parts = sizeof parts / sizeof *parts;
        pattern = round / 2 % 2 ? &bpe_patterns[round % N_PATTERNS] : &more_patterns[round % 5];
        bpe_pattern steps[3] = {*pattern, more_patterns[round / 5 % 5], *pattern}; /* one after another */
        for (unsigned i = 1; i < 3; i++)
            steps[i].earlier = &steps[i - 1];
        pattern = round / 4 % 4 ? pattern : &steps[1 + round / 16 % 2];
        for (size_t left = below(300); left; left--) {
            const char *part = parts[below(round % 4 ? n_parts - 4 : n_parts)];
            memcpy(text + length, part, strlen(part));
            length += strlen(part);
        }
        exact = malloc(length ? length : 1); /* so that a byte read behind the end is seen */
        memcpy(exact, text, length);
        const int status = whole_run(&(job){.text = exact, .length = length});
        CHECK(status == BPE_OK || status == BPE_BAD_UTF8);
        free(exact);
        free(text);
    }
    printf("random: %ld texts\n", n);
}

/* a table of 10,000 words, whose first index is a plain array: some allocations fail */
static int train_large(job *j)
{
    enum { N = 10000, LENGTH = 8 };
    static merge_list list;
    static uint64_t lengths[N], counts[N];
    uint8_t *bytes = malloc(N * LENGTH);
    bpe_words *words = NULL;
    CHECK(bytes);
    state = 1; /* the same in each run */
    for (size_t i = 0; i < N * LENGTH; i++)
        bytes[i] = (uint8_t)below(256);
    for (size_t i = 0; i < N; i++) {
        lengths[i] = LENGTH;
        counts[i] = i % 7 + 1;
    }
    int status = bpe_words_new(seed, &words);
    THEN(bpe_words_put(words, bytes, lengths, counts, N));
    THEN(train(words, 50, &list));
    j->sum = list.sum;
    bpe_words_free(words);
    free(bytes);
    return status;
}

static void large_arrays(void)
{
    fail_each(train_large, &(job){0}, 0, 1);
    printf("large: no allocation that failed was missed\n");
}

/* words of one byte that nearly fill a batch; then a window in which 64 words begin, one before it, and one at the end */
static void full_batches(void)
{
    static const char *const first[] = {"1", "1a", ".1"}, *const middle[] = {"  ", "\n\n"}, *const last[] = {"1", "a1"};
    static merge_list none;
    for (unsigned kind = 0; kind < 12 * N_PATTERNS; kind++) {
        const char *const one = first[kind % 3], *const two = middle[kind / 3 % 2], *const three = last[kind / 6 % 2];
        bpe_rules *rules;
        bpe_encoder *encoder;
        pattern = &bpe_patterns[kind / 12];
        CHECK(new_rules(&rules) == BPE_OK && new_encoder(&none, rules, &encoder) == BPE_OK);
        for (size_t n = 0; n < 2 * BATCH; n++) {
            const size_t length = n + WINDOW + 2 + WINDOW;
            uint8_t *exact = malloc(length);
            bpe_words *words;
            CHECK(exact && bpe_words_new(seed, &words) == BPE_OK);
            for (size_t i = 0; i < length; i++)
                exact[i] = (uint8_t)(i < n ? one[i % strlen(one)] : i < n + WINDOW ? 'a' : three[i % strlen(three)]);
            memcpy(exact + n + WINDOW, two, 2);
            CHECK(scan(words, rules, exact, length) == BPE_OK);
            CHECK(encode(&(job){.encoder = encoder, .text = exact, .length = length}) == BPE_OK);
            bpe_words_free(words);
            free(exact);
        }
        bpe_encoder_free(encoder);
        bpe_rules_free(rules);
    }
    printf("batches: never more words than there is room for\n");
}

/* more long words than the arena of a cache may hold; encode_once() checks how large it gets */
static void long_words(void)
{
    enum { N = 80000, LENGTH = 100 };
    static merge_list none;
    uint8_t *text = random_words(N, LENGTH);
    uint64_t sum;
    bpe_rules *rules;
    bpe_encoder *encoder;
    bpe_cache *cache;
    size_t n;
    CHECK(new_rules(&rules) == BPE_OK && new_encoder(&none, rules, &encoder) == BPE_OK);
    CHECK(encode(&(job){.encoder = encoder, .text = text, .length = N * LENGTH}) == BPE_OK);
    CHECK(bpe_cache_new(encoder, &cache) == BPE_OK);
    for (size_t i = 0; i < 2000; i++) /* for short texts, no room is made before */
        CHECK(encode_once(cache, text + i * LENGTH, 7, &n, &sum) == BPE_OK);
    bpe_cache_free(cache);
    bpe_encoder_free(encoder);
    bpe_rules_free(rules);
    free(text);
    printf("long words, and many: a cache stays within its limits\n");
}

/* statuses and branches that no text above reaches */
static void edges(void)
{
    enum { N = 40000, LENGTH = 12, LONG = 5000 };
    static merge_list list;
    uint8_t *text = random_words(N, LENGTH);
    uint64_t one = 4, count = (uint64_t)1 << 61;
    bpe_words *words;
    bpe_rules *rules;
    bpe_encoder *encoder, *none;
    bpe_cache *cache;
    bpe_learner *learner;
    bpe_merge merge;
    uint32_t ids[16];
    size_t n, made, n_moved = 0;
    CHECK(new_rules(&rules) == BPE_OK && bpe_words_new(seed, &words) == BPE_OK);
    CHECK(scan(words, rules, text, N * LENGTH) == BPE_OK);
    CHECK(new_learner(words, MOST, &learner) == BPE_OK);
    for (size_t capacity = learner->lists_capacity; bpe_learner_run(learner, &merge, 1, &made) == BPE_OK;)
        if (learner->lists_capacity != capacity) { /* the block was full: lists of pairs that are gone went */
            capacity = learner->lists_capacity;
            n_moved++;
        }
    CHECK(n_moved);
    bpe_learner_free(learner);
    bpe_words_free(words);

    CHECK(bpe_words_new(seed, &words) == BPE_OK); /* 2^63 bytes */
    CHECK(bpe_words_put(words, text + 1, &one, &count, 1) == BPE_OVERFLOW);
    CHECK(scan(words, rules, text, 10) == BPE_USED_UP);
    bpe_words_free(words);

    for (size_t i = 0; i < LONG; i++) /* one word, whose tree is allocated, and cannot be */
        text[i] = 'a' + (text[i] & 1);
    CHECK(bpe_words_new(seed, &words) == BPE_OK && scan(words, rules, text, LONG) == BPE_OK);
    CHECK(train(words, 200, &list) == BPE_OK && new_encoder(&list, rules, &encoder) == BPE_OK);
    fail_each(encode, &(job){.encoder = encoder, .text = text, .length = LONG}, 0, 0);
    bpe_words_free(words);

    CHECK(bpe_cache_new(encoder, &cache) == BPE_OK); /* the byte 1 has no token */
    for (int round = 0; round < 2; round++) {
        CHECK(encode_text(cache, (const uint8_t *)"ab a\1b", 6, ids, NULL, &n) == BPE_NO_TOKEN && n == 4);
        CHECK(encode_text(cache, (const uint8_t *)"a b", 3, ids, NULL, &n) == BPE_OK && n > 0);
    }
    CHECK(bpe_encoder_new(ids, 1 << 21, NULL, NULL, 0, NULL, 0, rules, NULL, seed, &none) == BPE_TOO_MANY_TOKENS);
    bpe_encoder_free(none);
    bpe_cache_free(cache);

    const uint64_t lengths[] = {0, 2}; /* the empty token, among those that stay whole, is no word */
    uint32_t vocabulary[258];
    for (uint32_t i = 0; i < 258; i++)
        vocabulary[i] = i;
    CHECK(bpe_encoder_new(vocabulary, 258, (const uint8_t *)"!?", lengths, 2, NULL, 0, rules, vocabulary,
                          seed, &none) == BPE_OK);
    CHECK(bpe_cache_new(none, &cache) == BPE_OK);
    CHECK(encode_text(cache, (const uint8_t *)"!?", 2, ids, NULL, &n) == BPE_OK && n == 1 && ids[0] == 257);
    bpe_cache_free(cache);
    bpe_encoder_free(none);
    bpe_encoder_free(encoder);
    bpe_rules_free(rules);
    free(text);
    printf("edges: lists were moved %zu times\n", n_moved);
}

/* print a checksum for each pattern */
static void results(job *j)
{
    for (int i = 0; i < N_PATTERNS; i++) {
        pattern = &bpe_patterns[i];
        CHECK(whole_run(j) == BPE_OK);
        printf("%d %016" PRIx64 "\n", i, j->sum);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    if (!strcmp(argv[1], "random")) {
        random_texts(atol(argv[2]));
        large_arrays();
        full_batches();
        long_words();
        edges();
        return 0;
    }
    FILE *file = fopen(argv[2], "rb");
    uint8_t *text = malloc(1 << 20);
    CHECK(file && text);
    size_t length = fread(text, 1, 1 << 20, file);
    fclose(file);
    job j = {.text = text, .length = length};
    if (!strcmp(argv[1], "alloc")) {
        j.length = length < 2500 ? length : 2500;
        fail_everywhere(&j);
    } else if (!strcmp(argv[1], "results"))
        results(&j);
    else
        count_in_threads(&j);
    free(text);
    return 0;
}
