/*
 * A library for LD_PRELOAD that makes chosen allocations fail, for failing_malloc.py. It counts those of one thread, in C and in
 * Python (with PYTHONMALLOC=malloc), and passes them on to the next malloc: the C library's, or a sanitizer's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

/* of a thread, at a fixed place: the address sanitizer replaces the function that looks for others, too late for us */
#define OF_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
OF_THREAD long until_first; /* counts down to the first allocation that fails */
OF_THREAD long left;        /* how many fail from there on */
OF_THREAD int paused;

/* Let the n-th allocation of this thread from now on fail, and those that follow it: `most` in all. */
void fail_from(long n, long most)
{
    until_first = n;
    left = most;
}

/* Let none fail any more. Returns how many of them were still to come. */
long fail_no_more(void)
{
    const long were_left = left;
    left = 0;
    return were_left;
}

/* In between, allocations neither fail nor count. */
void pause_failures(void) { paused = 1; }
void continue_failures(void) { paused = 0; }

static int fails(void)
{
    if (paused || !left || (until_first > 1 && until_first--))
        return 0;
    left--;
    errno = ENOMEM;
    return 1;
}

#define NEXT(type, name, ...)                                                                                          \
    static type(*next)(__VA_ARGS__);                                                                                   \
    if (!next)                                                                                                         \
        *(void **)&next = dlsym(RTLD_NEXT, name);

void *malloc(size_t size)
{
    NEXT(void *, "malloc", size_t)
    return fails() ? NULL : next(size);
}

void *calloc(size_t n, size_t size)
{
    NEXT(void *, "calloc", size_t, size_t)
    return fails() ? NULL : next(n, size);
}

void *realloc(void *block, size_t size)
{
    NEXT(void *, "realloc", void *, size_t)
    return fails() ? NULL : next(block, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    NEXT(void *, "aligned_alloc", size_t, size_t)
    return fails() ? NULL : next(alignment, size);
}
