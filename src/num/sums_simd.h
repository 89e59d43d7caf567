/* SPDX-License-Identifier: Apache-2.0 */
/* The sum kernels of a vector instruction set: one body for all element types. Part of
 * kernels_simd.h, and like it without an include guard. */

/* Multiplying by a power of two gives the bits of dividing by its reciprocal, and is faster; true
 * when 1 / divisor is such a power and a normal number. */
static bool has_exact_reciprocal_f32(float divisor)
{
    uint32_t bits;

    memcpy(&bits, &divisor, sizeof bits);

    uint32_t exponent = (bits >> 23) & 0xffu;

    return (bits & 0x7fffffu) == 0 && exponent >= 1 && exponent <= 253;
}

static bool has_exact_reciprocal_f64(double divisor)
{
    uint64_t bits;

    memcpy(&bits, &divisor, sizeof bits);

    uint64_t exponent = (bits >> 52) & 0x7ffu;

    return (bits & UINT64_C(0xfffffffffffff)) == 0 && exponent >= 1 && exponent <= 2045;
}

/* A divisor, or its exact reciprocal. `multiply` is a constant wherever a body is inlined. */
struct vf_divisor {
    vf by;
    bool multiply;
};

struct vd_divisor {
    vd by;
    bool multiply;
};

static inline vf vf_finish(vf sum, struct vf_divisor divisor)
{
    return divisor.multiply ? vf_mul(sum, divisor.by) : vf_div(sum, divisor.by);
}

static inline vd vd_finish(vd sum, struct vd_divisor divisor)
{
    return divisor.multiply ? vd_mul(sum, divisor.by) : vd_div(sum, divisor.by);
}

static inline vf vf_load_f16(const uint16_t *x)
{
    return vf_of_f16(vh_load(x));
}

static inline void vf_store_f16(uint16_t *y, vf x)
{
    vh_store(y, f16_of_vf(x));
}

/* Rounded to a half and widened again. */
static inline vf vf_by_f16(vf x)
{
    return vf_of_f16(f16_of_vf(x));
}

/* The same for what passes through halves: each input as it is read, the mean before it is
 * written. */
static inline vf vf_load_by_f16(const float *x)
{
    return vf_by_f16(vf_load(x));
}

static inline vf vf_load_by_bf16(const float *x)
{
    return vf_by_bf16(vf_load(x));
}

static inline vf vf_finish_by_f16(vf sum, struct vf_divisor divisor)
{
    return vf_by_f16(vf_finish(sum, divisor));
}

static inline vf vf_finish_by_bf16(vf sum, struct vf_divisor divisor)
{
    return vf_by_bf16(vf_finish(sum, divisor));
}

/* Halves, rounded after each addition. fp32 has more than twice their digits: rounding its sum
 * gives what an addition of halves gives. */
static inline vh vh_step_f16(vh sum, vh x)
{
    return f16_of_vf(vf_add(vf_of_f16(sum), vf_of_f16(x)));
}

static inline vf vf_step_bf16(vf sum, vf x)
{
    return vf_by_bf16(vf_add(sum, x));
}

#define WHOLE(sum, none) ((void)(none), (sum))

/*
 * Defines the body of one sum kernel. load, add and store work on a vector of n_lanes elements; an
 * input is read by wide vectors at a time, so that its pointer is read from memory less often, but
 * no more than fit in registers, where the conversions of halves take some too. finish divides the
 * sum before it is stored; WHOLE leaves it. Integers, and halves that are rounded after each
 * addition, are not divided. The elements that do not fill wide vectors go by single ones; the last
 * of them is padded with zeros.
 */
#define DEFINE_SUM(name, element, vector, n_lanes, wide, load, add, store, finish, divisor_type) \
    static inline __attribute__((always_inline)) void name(                                      \
        size_t n, size_t n_in, const element *const *in, size_t n_out, element *const *out,      \
        divisor_type divisor)                                                                    \
    {                                                                                            \
        size_t i = 0;                                                                            \
                                                                                                 \
        for (; n - i >= wide * n_lanes; i += wide * n_lanes) {                                   \
            vector sum[wide];                                                                    \
                                                                                                 \
            for (size_t j = 0; j < wide; j++) {                                                  \
                sum[j] = load(in[0] + i + j * n_lanes);                                          \
            }                                                                                    \
            for (size_t k = 1; k < n_in; k++) {                                                  \
                for (size_t j = 0; j < wide; j++) {                                              \
                    sum[j] = add(sum[j], load(in[k] + i + j * n_lanes));                         \
                }                                                                                \
            }                                                                                    \
            for (size_t j = 0; j < wide; j++) {                                                  \
                sum[j] = finish(sum[j], divisor);                                                \
            }                                                                                    \
            for (size_t k = 0; k < n_out; k++) {                                                 \
                for (size_t j = 0; j < wide; j++) {                                              \
                    store(out[k] + i + j * n_lanes, sum[j]);                                     \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        for (; i < n; i += n_lanes) {                                                            \
            size_t here_bytes = (n - i < n_lanes ? n - i : n_lanes) * sizeof(element);           \
            element padded[n_lanes] = {0};                                                       \
                                                                                                 \
            memcpy(padded, in[0] + i, here_bytes);                                               \
                                                                                                 \
            vector sum = load(padded);                                                           \
                                                                                                 \
            for (size_t k = 1; k < n_in; k++) {                                                  \
                memcpy(padded, in[k] + i, here_bytes);                                           \
                sum = add(sum, load(padded));                                                    \
            }                                                                                    \
            store(padded, finish(sum, divisor));                                                 \
            for (size_t k = 0; k < n_out; k++) {                                                 \
                memcpy(out[k] + i, padded, here_bytes);                                          \
            }                                                                                    \
        }                                                                                        \
    }

DEFINE_SUM(sum_f32_body, float, vf, 16, 4, vf_load, vf_add, vf_store, vf_finish, struct vf_divisor)
DEFINE_SUM(sum_f16_body, uint16_t, vf, 16, 2, vf_load_f16, vf_add, vf_store_f16, vf_finish,
           struct vf_divisor)
DEFINE_SUM(sum_bf16_body, uint16_t, vf, 16, 2, vf_load_bf16_shuffled, vf_add,
           vf_store_bf16_shuffled, vf_finish, struct vf_divisor)
DEFINE_SUM(mean_f32_by_f16_body, float, vf, 16, 2, vf_load_by_f16, vf_add, vf_store,
           vf_finish_by_f16, struct vf_divisor)
DEFINE_SUM(mean_f32_by_bf16_body, float, vf, 16, 2, vf_load_by_bf16, vf_add, vf_store,
           vf_finish_by_bf16, struct vf_divisor)
DEFINE_SUM(sum_f16_stepwise_body, uint16_t, vh, 16, 2, vh_load, vh_step_f16, vh_store, WHOLE, int)
DEFINE_SUM(sum_bf16_stepwise_body, uint16_t, vf, 16, 2, vf_load_bf16_shuffled, vf_step_bf16,
           vf_store_rounded_bf16_shuffled, WHOLE, int)
DEFINE_SUM(sum_f64_body, double, vd, 8, 4, vd_load, vd_add, vd_store, vd_finish, struct vd_divisor)
DEFINE_SUM(sum_i32_body, int32_t, vi, 16, 4, vi_load, vi_add32, vi_store, WHOLE, int)
DEFINE_SUM(sum_i64_body, int64_t, vi, 8, 4, vi_load, vi_add64, vi_store, WHOLE, int)
DEFINE_SUM(sum_u8_body, uint8_t, vi, 64, 4, vi_load, vi_add8, vi_store, WHOLE, int)

/* Calls body with its arguments and the divisor. Each way of dividing has its own loop. */
#define BY_F32(divisor, body, ...)                                                 \
    do {                                                                           \
        if (has_exact_reciprocal_f32(divisor)) {                                   \
            body(__VA_ARGS__, (struct vf_divisor){vf_set1(1.0f / divisor), true}); \
        } else {                                                                   \
            body(__VA_ARGS__, (struct vf_divisor){vf_set1(divisor), false});       \
        }                                                                          \
    } while (0)

static void sum_f32(size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,
                    float *const *out)
{
    BY_F32(divisor, sum_f32_body, n, n_in, in, n_out, out);
}

static void sum_f64(size_t n, size_t n_in, const double *const *in, double divisor, size_t n_out,
                    double *const *out)
{
    if (has_exact_reciprocal_f64(divisor)) {
        sum_f64_body(n, n_in, in, n_out, out, (struct vd_divisor){vd_set1(1.0 / divisor), true});
    } else {
        sum_f64_body(n, n_in, in, n_out, out, (struct vd_divisor){vd_set1(divisor), false});
    }
}

static void sum_f16(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                    uint16_t *const *out)
{
    BY_F32(divisor, sum_f16_body, n, n_in, in, n_out, out);
}

static void sum_bf16(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                     uint16_t *const *out)
{
    BY_F32(divisor, sum_bf16_body, n, n_in, in, n_out, out);
}

static void mean_f32_by_f16(size_t n, size_t n_in, const float *const *in, float divisor,
                            size_t n_out, float *const *out)
{
    BY_F32(divisor, mean_f32_by_f16_body, n, n_in, in, n_out, out);
}

static void mean_f32_by_bf16(size_t n, size_t n_in, const float *const *in, float divisor,
                             size_t n_out, float *const *out)
{
    BY_F32(divisor, mean_f32_by_bf16_body, n, n_in, in, n_out, out);
}

static void sum_f16_stepwise(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out)
{
    sum_f16_stepwise_body(n, n_in, in, 1, &out, 0);
}

static void sum_bf16_stepwise(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out)
{
    sum_bf16_stepwise_body(n, n_in, in, 1, &out, 0);
}

static void sum_i32(size_t n, size_t n_in, const int32_t *const *in, size_t n_out,
                    int32_t *const *out)
{
    sum_i32_body(n, n_in, in, n_out, out, 0);
}

static void sum_i64(size_t n, size_t n_in, const int64_t *const *in, size_t n_out,
                    int64_t *const *out)
{
    sum_i64_body(n, n_in, in, n_out, out, 0);
}

static void sum_u8(size_t n, size_t n_in, const uint8_t *const *in, size_t n_out,
                   uint8_t *const *out)
{
    sum_u8_body(n, n_in, in, n_out, out, 0);
}
