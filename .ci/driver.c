/*
 * Runs the C engine by itself, for the sanitizers: `python build_ffi.py --source full.c`, then compile this with
 * -DSOURCE='"full.c"'. It does three things with the text of a file:
 *
 *   driver alloc FILE    a small training, in which every single allocation fails once, and all from each one on
 *   driver threads FILE  count it with four threads, merge, learn; compare with one thread
 *   driver random N      N random texts and trainings, valid and not
 */
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
static void *test_aligned(size_t align, size_t size) { return fails() ? NULL : aligned_alloc(align, size); }

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

static const uint8_t specials[] = "<|endoftext|><|";
static const size_t special_lengths[] = {13, 2};

/* train to `merges` merges; a checksum of them in *sum */
static int train(bpe_words *words, size_t merges, uint64_t *sum)
{
    uint8_t bytes[256];
    size_t lengths[256], made;
    uint32_t ids[256];
    bpe_learner *learner;
    bpe_merge batch[64];
    int status;
    for (unsigned i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
        lengths[i] = 1;
        ids[i] = i;
    }
    *sum = 0;
    status = bpe_learner_new(words, ids, bytes, lengths, 256, merges, 1, SIZE_MAX, 0, 0, &learner);
    while (status == BPE_OK && merges) {
        status = bpe_learner_run(learner, batch, merges < 64 ? merges : 64, &made);
        if (status != BPE_OK || !made)
            break;
        for (size_t i = 0; i < made; i++)
            *sum = *sum * 31 + batch[i].left * 7 + batch[i].right * 3 + batch[i].count + batch[i].replaced;
        merges -= made;
    }
    bpe_learner_free(learner);
    return status;
}

/* scan, copy into another table, train: all that allocates */
static int whole_run(const uint8_t *text, size_t length, uint64_t *sum)
{
    size_t bad;
    bpe_words *words = bpe_words_new(specials, special_lengths, 2), *copy = bpe_words_new(NULL, NULL, 0);
    int status = words && copy ? bpe_words_scan(words, text, length, &bad) : BPE_NO_MEMORY;
    if (status == BPE_OK)
        status = bpe_words_add(copy, words);
    if (status == BPE_OK)
        status = train(copy, 300, sum);
    bpe_words_free(words);
    bpe_words_free(copy);
    return status;
}

static void fail_everywhere(const uint8_t *text, size_t length)
{
    uint64_t expected, sum;
    long n = 0;
    CHECK(whole_run(text, length, &expected) == BPE_OK);
    for (int all = 0; all < 2; all++)
        for (n = 0;; n++) {
            int status;
            calls = 0;
            fail_from = n;
            fail_to = all ? 1L << 40 : n + 1;
            status = whole_run(text, length, &sum);
            if (calls <= n)
                break; /* it made fewer calls than that, so none failed */
            CHECK(status == BPE_NO_MEMORY);
        }
    fail_from = -1;
    CHECK(whole_run(text, length, &sum) == BPE_OK && sum == expected);
    printf("alloc: %ld allocations failed one by one, and all after each\n", n);
}

typedef struct {
    bpe_words *words;
    const uint8_t *text;
    size_t length;
} job;

static void *count_job(void *argument)
{
    job *j = argument;
    size_t bad;
    CHECK(bpe_words_scan(j->words, j->text, j->length, &bad) == BPE_OK);
    return NULL;
}

static void count_in_threads(const uint8_t *text, size_t length)
{
    enum { N = 4 };
    pthread_t threads[N];
    job jobs[N];
    uint64_t one, four;
    bpe_words *single = bpe_words_new(specials, special_lengths, 2);
    size_t start = 0, bad;
    CHECK(single);
    for (size_t i = 0; i < N; i++) {
        size_t end = length * (i + 1) / N;
        while (end < length && (text[end] & 0xC0) == 0x80)
            end++;
        jobs[i] = (job){bpe_words_new(specials, special_lengths, 2), text + start, end - start};
        CHECK(jobs[i].words && bpe_words_scan(single, text + start, end - start, &bad) == BPE_OK);
        start = end;
    }
    for (size_t i = 0; i < N; i++)
        CHECK(!pthread_create(threads + i, NULL, count_job, jobs + i));
    for (size_t i = 0; i < N; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (size_t i = 1; i < N; i++) {
        CHECK(bpe_words_add(jobs[0].words, jobs[i].words) == BPE_OK);
        bpe_words_free(jobs[i].words);
    }
    CHECK(train(single, 2000, &one) == BPE_OK && train(jobs[0].words, 2000, &four) == BPE_OK && one == four);
    bpe_words_free(single);
    bpe_words_free(jobs[0].words);
    printf("threads: four agree with one\n");
}

static void random_texts(long n)
{
    static const char *const parts[] = {"a", "b", "'", "ll", " ", "  ", "\n", "\xe5\xad\x97", "\xc3\xa9", "\xe3\x80\x80",
                                        "\xf0\x9f\x98\x80", "1", "<|", "<|endoftext|>", "\xff", "\xe5", "aaaa", "."};
    uint64_t state = 88172645463325252u, sum;
    for (long round = 0; round < n; round++) {
        uint8_t *text = malloc(1 << 12), *exact;
        size_t length = 0, parts_used = sizeof parts / sizeof *parts;
        int status;
        for (size_t steps = (state >> 20) % 300; steps; steps--) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            const char *part = parts[state % (round % 4 ? parts_used - 4 : parts_used)];
            memcpy(text + length, part, strlen(part));
            length += strlen(part);
        }
        exact = malloc(length ? length : 1); /* so that a byte read behind the end is seen */
        memcpy(exact, text, length);
        status = whole_run(exact, length, &sum);
        CHECK(status == BPE_OK || status == BPE_BAD_UTF8);
        free(exact);
        free(text);
        state += 0x9E3779B97F4A7C15u;
    }
    printf("random: %ld texts\n", n);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    if (!strcmp(argv[1], "random")) {
        random_texts(atol(argv[2]));
        return 0;
    }
    FILE *file = fopen(argv[2], "rb");
    uint8_t *text = malloc(1 << 20);
    CHECK(file && text);
    size_t length = fread(text, 1, 1 << 20, file);
    fclose(file);
    if (!strcmp(argv[1], "alloc"))
        fail_everywhere(text, length < 2500 ? length : 2500);
    else
        count_in_threads(text, length);
    free(text);
    return 0;
}
