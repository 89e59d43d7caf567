/* SPDX-License-Identifier: Apache-2.0 */
/* The means of a vector level that pass through codes, without a byte of them in memory. Part of
 * kernels_simd.h, and like it without an include guard; it comes after quantize_simd.h. */

/*
 * From 2^23 to 2^24 all floats are whole numbers: adding this rounds to one, half to even, as the
 * encoders do, and taking it away again leaves the number, +0 where it is 0. What is too large for
 * that lies beyond the codes in any case.
 */
#define RAISE 0x1.8p23f

/* A map, with the bounds that the codes 0 and 255 set to the raised steps. */
struct raised_map {
    float inverse;
    float least;
    float most;
    float scale;
};

static inline struct raised_map raised_map_of(struct tally__affine affine)
{
    float least = RAISE - affine.zero;

    /* A scale that is not finite has codes 0 only. */
    return (struct raised_map){
        .inverse = 1.0f / affine.scale,
        .least = least,
        .most = isfinite(affine.scale) ? least + 255.0f : least,
        .scale = affine.scale,
    };
}

/* Quantized and dequantized. A NaN takes the lower bound, like code 0. */
static inline vf vf_by_map(vf x, const struct raised_map *map)
{
    const vf raise = vf_set1(RAISE);
    vf raised = vf_add(vf_mul(x, vf_set1(map->inverse)), raise);
    vf held = vf_min(vf_max(raised, vf_set1(map->least)), vf_set1(map->most));

    return vf_mul(vf_set1(map->scale), vf_sub(held, raise));
}

/* Inputs that are added in one pass. */
#define TOGETHER ((size_t)8)

/* Vectors per visit of an input, and their floats. */
#define PAIR (2 * LANES)

/* One block of up to TOGETHER inputs, and how each of them is quantized. */
struct addends {
    size_t n;
    size_t n_in;
    const float *in[8];
    struct raised_map maps[8];
};

/* What a mean is made of. */
struct mean_inputs {
    size_t n;
    size_t n_in;
    const float *const *in;
    const struct tally__affine *maps;
    size_t block;
    size_t unsound; /* the first input with a scale that is not finite; n_in: none yet */
};

/* The inputs from number `first` on, as many as go together, of the block that begins at start. */
static void take_addends(struct mean_inputs *inputs, size_t start, size_t first,
                         struct addends *addends)
{
    addends->n = smaller(inputs->block, inputs->n - start);
    addends->n_in = smaller(TOGETHER, inputs->n_in - first);
    for (size_t k = 0; k < addends->n_in; k++) {
        const float *x = inputs->in[first + k] + start;
        struct tally__affine affine =
            inputs->maps ? inputs->maps[first + k] : affine_of_block(addends->n, x);

        if (!isfinite(affine.scale) && inputs->unsound == inputs->n_in) {
            inputs->unsound = first + k;
        }
        addends->in[k] = x;
        addends->maps[k] = raised_map_of(affine);
    }
}

/* The least and the most of many vectors. */
struct extent {
    vf least;
    vf most;
    vm is_nan;
};

static inline struct extent extent_of_zero(void)
{
    vf zero = vf_set1(0.0f);

    return (struct extent){zero, zero, vf_unordered(zero, zero)};
}

static inline void extend(struct extent *extent, vf x, vf y)
{
    extent->least = vf_min(extent->least, vf_min(x, y));
    extent->most = vf_max(extent->most, vf_max(x, y));
    extent->is_nan = vm_or(extent->is_nan, vf_unordered(x, y));
}

/* The map of a block of n elements. It is the same whether or not zeros are in the extent. */
static struct tally__affine affine_of_extent(size_t n, const struct extent *extent)
{
    if (vm_any(extent->is_nan)) {
        return tally__affine_of(n, NAN, NAN);
    }
    return tally__affine_of(n, vf_least(extent->least), vf_most(extent->most));
}

/* Which part of a sum a pass over the inputs is. */
struct pass {
    bool is_first;
    bool is_last;
    struct vf_divisor divisor;
};

/* Elements i to i + PAIR of the inputs are added to those of sums. The last pass divides. */
static inline __attribute__((always_inline)) void
add_pair(const struct addends *addends, size_t i, struct pass pass, float *sums, struct extent *all)
{
    vf sum[2];
    size_t k = 0;

    for (size_t j = 0; j < 2; j++) {
        sum[j] = pass.is_first ? vf_by_map(vf_load(addends->in[0] + i + j * LANES), addends->maps)
                               : vf_load(sums + j * LANES);
    }
    for (k = pass.is_first ? 1 : 0; k < addends->n_in; k++) {
        for (size_t j = 0; j < 2; j++) {
            vf x = vf_load(addends->in[k] + i + j * LANES);

            sum[j] = vf_add(sum[j], vf_by_map(x, &addends->maps[k]));
        }
    }
    if (pass.is_last) {
        sum[0] = vf_finish(sum[0], pass.divisor);
        sum[1] = vf_finish(sum[1], pass.divisor);
        extend(all, sum[0], sum[1]);
    }
    vf_store(sums, sum[0]);
    vf_store(sums + LANES, sum[1]);
}

/* The elements that do not fill a pair, padded with zeros. Those add zeros to the extent, or what
 * all elements give whose map has no finite scale. */
static inline __attribute__((always_inline)) void
add_rest(const struct addends *addends, size_t i, struct pass pass, float *sums, struct extent *all)
{
    struct addends rest = *addends;
    float padded[8][32] = {{0}};

    for (size_t k = 0; k < rest.n_in; k++) {
        memcpy(padded[k], addends->in[k] + i, (addends->n - i) * sizeof padded[k][0]);
        rest.in[k] = padded[k];
    }
    add_pair(&rest, 0, pass, sums, all);
}

static inline __attribute__((always_inline)) void
add_block(const struct addends *addends, struct pass pass, float *sums, struct extent *all)
{
    struct extent extent = *all;
    size_t i = 0;

    for (; addends->n - i >= PAIR; i += PAIR) {
        add_pair(addends, i, pass, sums + i, &extent);
    }
    if (i < addends->n) {
        add_rest(addends, i, pass, sums + i, &extent);
    }
    *all = extent;
}

/* Writes the quantized mean to elements start.. of every output. */
static void put_mean(size_t n, const float *mean, struct tally__affine affine, size_t start,
                     size_t n_out, float *const *out)
{
    const struct raised_map map = raised_map_of(affine);
    size_t i = 0;

    for (; n - i >= PAIR; i += PAIR) {
        vf y[2] = {vf_by_map(vf_load(mean + i), &map), vf_by_map(vf_load(mean + i + LANES), &map)};

        for (size_t k = 0; k < n_out; k++) {
            for (size_t j = 0; j < 2; j++) {
                float *to = out[k] + start + i + j * LANES;

                fetch_to_write(to);
                vf_store(to, y[j]);
            }
        }
    }
    if (i < n) {
        float rest[32];

        vf_store(rest, vf_by_map(vf_load(mean + i), &map));
        vf_store(rest + LANES, vf_by_map(vf_load(mean + i + LANES), &map));
        for (size_t k = 0; k < n_out; k++) {
            memcpy(out[k] + start + i, rest, (n - i) * sizeof rest[0]);
        }
    }
}

/*
 * The maps of the next block are computed before the mean of this one is written: nothing then
 * waits for the long chains of dependent instructions from extents to maps.
 */
static inline __attribute__((always_inline)) void
mean_by_maps(struct mean_inputs *inputs, struct vf_divisor divisor, size_t n_out, float *const *out)
{
    float sums[TALLY__MEAN_BLOCK_MOST];
    struct addends addends;

    take_addends(inputs, 0, 0, &addends);
    for (size_t start = 0; start < inputs->n; start += inputs->block) {
        struct extent extent = extent_of_zero();
        size_t n_here = addends.n;

        for (size_t first = 0; first < inputs->n_in; first += TOGETHER) {
            bool is_last = inputs->n_in - first <= TOGETHER;

            if (first > 0) {
                take_addends(inputs, start, first, &addends);
            }
            add_block(&addends, (struct pass){first == 0, is_last, divisor}, sums, &extent);
        }

        struct tally__affine affine = affine_of_extent(n_here, &extent);

        if (n_here < inputs->n - start) {
            take_addends(inputs, start + n_here, 0, &addends);
        }
        put_mean(n_here, sums, affine, start, n_out, out);
    }
}

static size_t mean_f32_by_affine(size_t n, size_t n_in, const float *const *in,
                                 const struct tally__affine *maps, size_t block, float divisor,
                                 size_t n_out, float *const *out)
{
    struct mean_inputs inputs = {n, n_in, in, maps, block, n_in};

    if (n == 0) {
        return n_in;
    }
    if (has_exact_reciprocal_f32(divisor)) {
        mean_by_maps(&inputs, (struct vf_divisor){vf_set1(1.0f / divisor), true}, n_out, out);
    } else {
        mean_by_maps(&inputs, (struct vf_divisor){vf_set1(divisor), false}, n_out, out);
    }
    return inputs.unsound;
}
