/*
 * bpe_lists.c: token ids as lists of Python. The lists are made of int objects that exist already, whose addresses are
 * in `numbers`: new ones take longer than encoding does. Python calls these functions itself, since cffi takes longer
 * than a short text does.
 *
 * Only this file uses Python.h; where the engine is compiled without Python, it is empty. It uses bpe_encode,
 * HUGE_FROM, AHEAD and PREFETCH of bpe_fast.c, and the status codes. With -DNO_LISTS, it has no functions for Python,
 * which then makes lists itself: the ids are the same, and take longer.
 */

/* ---- interface: build_ffi.py gives this part to cffi ------------------------------------------------------------- */

typedef struct { bpe_cache *cache; const uintptr_t *numbers; } bpe_for_lists;

/* Append encode_short, lists_of and pause_collector to the Python list at this address; with NO_LISTS, nothing. f->cache
   may be NULL: no cache is free. */
int bpe_list_functions(bpe_for_lists *f, uintptr_t functions);

/* ---- end of the interface ---------------------------------------------------------------------------------------- */

#if defined(NO_LISTS)
int bpe_list_functions(bpe_for_lists *f, uintptr_t functions)
{
    (void)f;
    (void)functions;
    return BPE_OK;
}

#elif defined(Py_PYTHON_H)

#ifdef Py_LIMITED_API
#define PyList_SET_ITEM PyList_SetItem /* a function, which takes longer */
#endif

static PyObject *new_list(const bpe_for_lists *f, const uint32_t *ids, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
#if defined(__linux__) && defined(MADV_HUGEPAGE) && !defined(Py_LIMITED_API)
    if (list && n >= HUGE_FROM / sizeof list) { /* the system has just given this memory, and not yet a page of it */
        const uintptr_t start = (uintptr_t)((PyListObject *)list)->ob_item, page = (start | 4095) + 1;
        (void)madvise((void *)page, n * sizeof list - (page - start), MADV_HUGEPAGE); /* only advice */
    }
#endif
    for (size_t i = 0; list && i < n; i++) {
        PyObject *number = (PyObject *)f->numbers[ids[i]];
        if (i + AHEAD < n)
            PREFETCH((void *)f->numbers[ids[i + AHEAD]]); /* for its count of references */
        Py_INCREF(number); /* the list takes this reference over */
        PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    return list;
}

/* The lists of n texts: their ids are one array, and `ends` are those of each text's ids. */
static PyObject *lists_of(PyObject *self, PyObject *arguments)
{
    unsigned long long ids, ends, n, start = 0;
    if (!PyArg_ParseTuple(arguments, "KKK", &ids, &ends, &n))
        return NULL;
    PyObject *lists = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; lists && i < n; i++) {
        const uint64_t end = ((uint64_t *)(uintptr_t)ends)[i];
        PyObject *list = new_list(PyLong_AsVoidPtr(self), (uint32_t *)(uintptr_t)ids + start, (size_t)(end - start));
        if (list)
            PyList_SET_ITEM(lists, (Py_ssize_t)i, list);
        else
            Py_CLEAR(lists);
        start = end;
    }
    return lists;
}

static void resume_collector(PyObject *capsule)
{
    (void)capsule;
    PyGC_Enable();
}

/* Turn the garbage collector off until the result is freed. Ctrl-C can't come between two steps of this. */
static PyObject *pause_collector(PyObject *self, PyObject *none)
{
    PyObject *capsule = PyCapsule_New(PyLong_AsVoidPtr(self), NULL, NULL);
    (void)none;
    if (capsule && PyGC_Disable())
        PyCapsule_SetDestructor(capsule, resume_collector);
    return capsule;
}

/* The list of ids; or None for a long text, for an error, if no cache is free, or if threads may run this at once. */
static PyObject *encode_short(PyObject *self, PyObject *data)
{
#ifndef Py_GIL_DISABLED
    bpe_for_lists *f = PyLong_AsVoidPtr(self);
    uint32_t ids[4000];
    uint64_t n = (uint64_t)PyBytes_Size(data);
    if (n <= 4000 - 3 && f->cache &&
        bpe_encode(f->cache, (void *)PyBytes_AsString(data), &n, 1, ids, NULL, NULL) == BPE_OK)
        return new_list(f, ids, n);
#endif
    return PyErr_Occurred() ? NULL : Py_BuildValue(""); /* None */
}

int bpe_list_functions(bpe_for_lists *f, uintptr_t functions)
{
    static PyMethodDef methods[] = {{"encode_short", encode_short, METH_O, NULL},
                                    {"lists_of", lists_of, METH_VARARGS, NULL},
                                    {"pause_collector", pause_collector, METH_NOARGS, NULL}};
    PyGILState_STATE state = PyGILState_Ensure(); /* cffi has released the GIL */
    PyObject *self = PyLong_FromVoidPtr(f), *list = (PyObject *)functions;
    int failed = !self;
    for (size_t i = 0; i < sizeof methods / sizeof *methods && !failed; i++) {
        PyObject *function = PyCFunction_New(&methods[i], self);
        failed = !function || PyList_Append(list, function);
        Py_XDECREF(function);
    }
    PyErr_Clear();
    Py_XDECREF(self);
    PyGILState_Release(state);
    return failed ? BPE_NO_MEMORY : BPE_OK;
}

#endif
