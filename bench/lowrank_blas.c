/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a BLAS and calls it. Variables of this file keep the BLAS, written once; one thread. */
#include "bench/lowrank_blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* CBLAS's numbers for these words. */
enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };

typedef void sgemm_function(int layout, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);
typedef void sgemv_function(int layout, int trans, int m, int n, float alpha, const float *a,
                            int lda, const float *x, int incx, float beta, float *y, int incy);

static sgemm_function *sgemm;
static sgemv_function *sgemv;

static int find(void *library)
{
    void *gemm = dlsym(library, "cblas_sgemm");
    void *gemv = dlsym(library, "cblas_sgemv");

    /* ISO C does not convert one kind of pointer to the other. */
    memcpy(&sgemm, &gemm, sizeof sgemm);
    memcpy(&sgemv, &gemv, sizeof sgemv);
    return gemm && gemv;
}

const char *lowrank_blas_load(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libblis.so.4", "libcblas.so.3",
                                        "libblas.so.3"};
    static const char *const threads[] = {"OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS",
                                          "OMP_NUM_THREADS"};

    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        (void)setenv(threads[i], "1", 1);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);

        if (library && find(library)) {
            return names[i];
        }
    }
    return NULL;
}

void lowrank_blas_multiply(const struct tally__low_rank *s, const float *x, const float *q,
                           float *p)
{
    int n = (int)s->n;
    int m = (int)s->m;

    if (s->r == 1) {
        sgemv(ROW_MAJOR, AS_IS, n, m, 1.0f, x, m, q, 1, 0.0f, p, 1);
    } else {
        sgemm(ROW_MAJOR, AS_IS, TRANSPOSED, (int)s->r, n, m, 1.0f, q, m, x, m, 0.0f, p, n);
    }
}

void lowrank_blas_multiply_transposed(const struct tally__low_rank *s, const float *x,
                                      const float *p, float *q)
{
    int n = (int)s->n;
    int m = (int)s->m;

    if (s->r == 1) {
        sgemv(ROW_MAJOR, TRANSPOSED, n, m, 1.0f, x, m, p, 1, 0.0f, q, 1);
    } else {
        sgemm(ROW_MAJOR, AS_IS, AS_IS, (int)s->r, m, n, 1.0f, p, n, x, m, 0.0f, q, m);
    }
}

void lowrank_blas_expand(const struct tally__low_rank *s, struct tally__factors f, float *y)
{
    int n = (int)s->n;
    int m = (int)s->m;

    sgemm(ROW_MAJOR, TRANSPOSED, AS_IS, n, m, (int)s->r, 1.0f, f.p, n, f.q, m, 0.0f, y, m);
}
