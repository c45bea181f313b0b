/*
 * A library for LD_PRELOAD: a system that refuses what environment variables name, for test_refusals.py.
 *
 * REFUSE_SEMAPHORES=38   sem_open() fails with this number
 * REFUSE_THREADS_FROM=3  the third thread of each process, and all that follow it, can't start
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

static int number_in(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

sem_t *sem_open(const char *name, int flags, ...)
{
    (void)name;
    (void)flags;
    errno = number_in("REFUSE_SEMAPHORES");
    return SEM_FAILED;
}

static atomic_int threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    const int first = number_in("REFUSE_THREADS_FROM");
    return first && atomic_fetch_add(&threads, 1) + 1 >= first ? EAGAIN : next(thread, attributes, start, argument);
}
