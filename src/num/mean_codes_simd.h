/* SPDX-License-Identifier: Apache-2.0 */
/* The means of a vector instruction set that go through codes without storing them. Part of
 * kernels_simd.h, without an include guard; it comes after quantize_simd.h. */

/*
 * From 2^23 to 2^24 all floats are whole numbers: adding this rounds to one, half to even, as the
 * encoders do, and taking it away again leaves the number, +0 where it is 0. Larger values
 * lie beyond the codes in any case.
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

    return (struct raised_map){
        .inverse = 1.0f / affine.scale,
        .least = least,
        .most = least + 255.0f,
        .scale = affine.scale,
    };
}

/*
 * Quantized and dequantized. within: x is known not to pass the bounds. A NaN takes the lower
 * bound, like code 0. By a scale that is not finite nothing becomes a finite number, so the mean of
 * such a block is NaN throughout, as it is with the codes 0 that the encoders give it.
 */
static inline __attribute__((always_inline)) vf vf_by_map(vf x, const struct raised_map *map,
                                                          bool within)
{
    const vf raise = vf_set1(RAISE);
    vf raised = vf_add(vf_mul(x, vf_set1(map->inverse)), raise);

    if (!within) {
        raised = vf_min(vf_max(raised, vf_set1(map->least)), vf_set1(map->most));
    }
    return vf_mul(vf_set1(map->scale), vf_sub(raised, raise));
}

/* The floats that are taken per visit of an array. */
#define PAIR (2 * LANES)

/*
 * The least and the most of many floats and 0, as bits. The positive ones are in order as integers
 * with a sign, above all others; the negative ones without a sign, above all others too. A NaN is
 * beyond the infinity of its sign. So two instructions per vector find all three.
 */
struct extent {
    vi least;
    vi most;
};

static inline struct extent extent_of_zero(void)
{
    return (struct extent){vf_bits(vf_set1(-0.0f)), vf_bits(vf_set1(0.0f))};
}

static inline void extend(struct extent *extent, vf x)
{
    extent->least = vi_max32_unsigned(extent->least, vf_bits(x));
    extent->most = vi_max32(extent->most, vf_bits(x));
}

/* Padded with zeros, which are in every extent. */
static inline struct extent extent_of_block(size_t n, const float *x)
{
    struct extent extent = extent_of_zero();
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        extend(&extent, vf_load(x + i));
    }
    if (m < n) {
        float padded[LANES] = {0};

        memcpy(padded, x + m, (n - m) * sizeof padded[0]);
        extend(&extent, vf_load(padded));
    }
    return extent;
}

/* A map made for these values, and whether no value exceeds its bounds. That is nearly always so;
 * the exception is a tie that 1 / scale rounds the other way. */
struct fitting_map {
    struct raised_map map;
    bool within;
};

static float float_of_bits(int32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline __attribute__((always_inline)) struct fitting_map
map_of_extent(size_t n, const struct extent *extent)
{
    /* All of least have the bit of the sign, so the order with a sign is the same. */
    float lo = float_of_bits(vi_most32(extent->least));
    float hi = float_of_bits(vi_most32(extent->most));
    struct raised_map map = raised_map_of(tally__affine_of(n, lo, hi));
    bool within = lo * map.inverse + RAISE >= map.least && hi * map.inverse + RAISE <= map.most;

    return (struct fitting_map){map, within};
}

/* Inputs that are added in one pass. */
#define TOGETHER ((size_t)8)

/* The inputs of a mean. */
struct mean_inputs {
    size_t n;
    size_t n_in;
    const float *const *in;
    const struct tally__affine_mean *mean;
    size_t unsound; /* the first input with a scale that is not finite; n_in: none yet */
};

/* One block of up to TOGETHER inputs, and how each of them is quantized. */
struct addends {
    size_t n;
    size_t n_in;
    bool within; /* no value passes the bounds of its map */
    const float *in[TOGETHER];
    struct raised_map maps[TOGETHER];
};

/* The inputs from number `first` on, as many as go together, of the block that begins at start. All
 * extents before the first map: the maps then wait for nothing but each other's instructions. */
static void take_addends(struct mean_inputs *inputs, size_t start, size_t first,
                         struct addends *addends)
{
    const struct tally__affine *maps = inputs->mean->maps;
    struct extent extents[TOGETHER];

    addends->n = smaller(inputs->mean->block, inputs->n - start);
    addends->n_in = smaller(TOGETHER, inputs->n_in - first);
    addends->within = true;
    for (size_t k = 0; k < addends->n_in; k++) {
        addends->in[k] = inputs->in[first + k] + start;
        if (!maps) {
            extents[k] = extent_of_block(addends->n, addends->in[k]);
        }
    }
    for (size_t k = 0; k < addends->n_in; k++) {
        struct fitting_map by;

        if (maps) {
            by = (struct fitting_map){raised_map_of(maps[first + k]), false};
        } else {
            by = map_of_extent(addends->n, &extents[k]);
        }
        if (!isfinite(by.map.scale) && inputs->unsound == inputs->n_in) {
            inputs->unsound = first + k;
        }
        addends->maps[k] = by.map;
        addends->within = addends->within && by.within;
    }
}

/* The sums of a block, on their way to the mean. */
struct block_sums {
    struct extent extent;
    float value[TALLY__MEAN_BLOCK_MOST];
};

/* The part of a sum that a pass over the inputs computes. The last part divides. */
struct pass {
    bool is_first;
    bool is_last;
    bool within;
    struct vf_divisor divisor;
};

/* The decoded values of elements i to i + PAIR are added to sum. */
static inline __attribute__((always_inline)) void
add_pair(const struct addends *addends, size_t n_in, size_t i, struct pass pass, vf *sum)
{
    for (size_t k = 0; k < n_in; k++) {
        for (size_t j = 0; j < 2; j++) {
            const float *x = addends->in[k] + i + j * LANES;
            vf y = vf_by_map(vf_load(x), &addends->maps[k], pass.within);

            /* Here and not where the block is read first: the memory then works all the time. */
            fetch_ahead(x);
            sum[j] = k == 0 && pass.is_first ? y : vf_add(sum[j], y);
        }
    }
}

/* The elements that do not fill a pair, padded with zeros. They come out as zeros, which are in
 * every extent, or not finite, like all elements. */
static inline __attribute__((always_inline)) void
add_rest(const struct addends *addends, size_t n_in, size_t i, struct pass pass, vf *sum)
{
    struct addends rest = *addends;
    float padded[TOGETHER][PAIR] = {{0}};

    for (size_t k = 0; k < n_in; k++) {
        memcpy(padded[k], addends->in[k] + i, (addends->n - i) * sizeof padded[k][0]);
        rest.in[k] = padded[k];
    }
    add_pair(&rest, n_in, 0, pass, sum);
}

/* n_in is that of the addends; a constant where it is common. */
static inline __attribute__((always_inline)) void
add_block(const struct addends *addends, size_t n_in, struct pass pass, struct block_sums *sums)
{
    struct extent extent = extent_of_zero();

    for (size_t i = 0; i < addends->n; i += PAIR) {
        float *value = sums->value + i;
        vf sum[2] = {vf_set1(0.0f), vf_set1(0.0f)};

        if (!pass.is_first) {
            sum[0] = vf_load(value);
            sum[1] = vf_load(value + LANES);
        }
        if (addends->n - i >= PAIR) {
            add_pair(addends, n_in, i, pass, sum);
        } else {
            add_rest(addends, n_in, i, pass, sum);
        }
        if (pass.is_last) {
            sum[0] = vf_finish(sum[0], pass.divisor);
            sum[1] = vf_finish(sum[1], pass.divisor);
            extend(&extent, sum[0]);
            extend(&extent, sum[1]);
        }
        vf_store(value, sum[0]);
        vf_store(value + LANES, sum[1]);
    }
    sums->extent = extent;
}

/* Each variant has its own loop. Two inputs, common for two ranks that share memory, keep both maps
 * in registers. */
static void add_to_sums(const struct addends *addends, struct pass pass, struct block_sums *sums)
{
    if (addends->within && addends->n_in == 2 && pass.is_first && pass.is_last) {
        add_block(addends, 2, (struct pass){true, true, true, pass.divisor}, sums);
    } else if (addends->within) {
        pass.within = true;
        add_block(addends, addends->n_in, pass, sums);
    } else {
        pass.within = false;
        add_block(addends, addends->n_in, pass, sums);
    }
}

/* Writes n means, quantized and dequantized, to the elements from start on of each output. */
static inline __attribute__((always_inline)) void put_block(size_t n, const float *mean,
                                                            struct fitting_map by, size_t start,
                                                            size_t n_out, float *const *out)
{
    size_t i = 0;

    for (; n - i >= PAIR; i += PAIR) {
        vf y[2];

        for (size_t j = 0; j < 2; j++) {
            y[j] = vf_by_map(vf_load(mean + i + j * LANES), &by.map, by.within);
        }
        for (size_t k = 0; k < n_out; k++) {
            float *to = out[k] + start + i;

            fetch_to_write(to);
            fetch_to_write(to + LANES);
            vf_store(to, y[0]);
            vf_store(to + LANES, y[1]);
        }
    }
    if (i < n) {
        float rest[PAIR];

        vf_store(rest, vf_by_map(vf_load(mean + i), &by.map, by.within));
        vf_store(rest + LANES, vf_by_map(vf_load(mean + i + LANES), &by.map, by.within));
        for (size_t k = 0; k < n_out; k++) {
            memcpy(out[k] + start + i, rest, (n - i) * sizeof rest[0]);
        }
    }
}

static void put_mean(size_t n, const float *mean, struct fitting_map by, size_t start, size_t n_out,
                     float *const *out)
{
    if (by.within) {
        put_block(n, mean, (struct fitting_map){by.map, true}, start, n_out, out);
    } else {
        put_block(n, mean, (struct fitting_map){by.map, false}, start, n_out, out);
    }
}

/* Adds up the block that begins at start, whose first addends are taken already. */
static void sum_block(struct mean_inputs *inputs, size_t start, struct addends *addends,
                      struct block_sums *sums)
{
    float by = inputs->mean->divisor;
    bool exact = has_exact_reciprocal_f32(by);
    struct vf_divisor divisor = {vf_set1(exact ? 1.0f / by : by), exact};

    for (size_t first = 0; first < inputs->n_in; first += TOGETHER) {
        struct pass pass = {
            .is_first = first == 0,
            .is_last = inputs->n_in - first <= TOGETHER,
            .divisor = divisor,
        };

        if (first > 0) {
            take_addends(inputs, start, first, addends);
        }
        add_to_sums(addends, pass, sums);
    }
}

/*
 * The maps of the next block are computed before the mean of this one is written: nothing then
 * waits for the long chains of dependent instructions from extents to maps.
 */
static size_t mean_f32_by_affine(size_t n, size_t n_in, const float *const *in,
                                 const struct tally__affine_mean *mean, size_t n_out,
                                 float *const *out)
{
    struct mean_inputs inputs = {n, n_in, in, mean, n_in};
    struct block_sums sums;
    struct addends addends;

    if (n > 0) {
        take_addends(&inputs, 0, 0, &addends);
    }
    for (size_t start = 0; start < n; start += mean->block) {
        size_t n_here = smaller(mean->block, n - start);
        struct fitting_map by;

        sum_block(&inputs, start, &addends, &sums);
        by = map_of_extent(n_here, &sums.extent);
        if (n_here < n - start) {
            take_addends(&inputs, start + n_here, 0, &addends);
        }
        put_mean(n_here, sums.value, by, start, n_out, out);
    }
    return inputs.unsound;
}
