// One register of doubles, or of whole numbers, at the three widths that we compile for. Compilers know how to add and
// compare whole ones on every machine.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace spadeful {

struct Scalar {
    static constexpr std::size_t width = 1;
    using Vector = double;
    typedef std::int32_t Whole __attribute__((vector_size(16)));
    static Vector load(const double* p) { return *p; }
    static void store(double* p, Vector v) { *p = v; }
    static Vector fill(double v) { return v; }
    static Vector iota() { return 0.0; }
    static Vector add(Vector a, Vector b) { return a + b; }
    static Vector subtract(Vector a, Vector b) { return a - b; }
    static Vector multiply(Vector a, Vector b) { return a * b; }
    // a b + c, rounded once: by the processor, or as slowly as it takes to give the same bits
    static Vector fused(Vector a, Vector b, Vector c) { return std::fma(a, b, c); }
    static Vector min(Vector a, Vector b) { return a < b ? a : b; }
    static Vector max(Vector a, Vector b) { return a > b ? a : b; }
    static unsigned less(Vector a, Vector b) { return a < b; }
    static unsigned equal(Vector a, Vector b) { return a == b; }
    static Vector where_less(Vector a, Vector b, Vector yes, Vector no) { return a < b ? yes : no; }
    static Vector where_equal(Vector a, Vector b, Vector yes, Vector no) { return a == b ? yes : no; }
    static double lowest(Vector v) { return v; }
    static std::int32_t lowest(Whole v) { return std::min(std::min(v[0], v[1]), std::min(v[2], v[3])); }
    // 2^n, where v = 1.5 * 2^52 + n: the lowest bits of such a number are those of n.
    static Vector power_of_two(Vector v) {
        std::uint64_t bits;
        std::memcpy(&bits, &v, sizeof bits);
        bits = (bits + 1023) << 52;
        std::memcpy(&v, &bits, sizeof bits);
        return v;
    }
};

#if defined(__AVX2__)
struct Avx2 {
    static constexpr std::size_t width = 4;
    using Vector = __m256d;
    typedef std::int32_t Whole __attribute__((vector_size(32)));
    static Vector load(const double* p) { return _mm256_loadu_pd(p); }
    static void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
    static Vector fill(double v) { return _mm256_set1_pd(v); }
    static Vector iota() { return _mm256_set_pd(3, 2, 1, 0); }
    static Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
    static Vector subtract(Vector a, Vector b) { return _mm256_sub_pd(a, b); }
    static Vector multiply(Vector a, Vector b) { return _mm256_mul_pd(a, b); }
    static Vector fused(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
    static Vector min(Vector a, Vector b) { return _mm256_min_pd(a, b); }
    static Vector max(Vector a, Vector b) { return _mm256_max_pd(a, b); }
    static unsigned less(Vector a, Vector b) { return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_LT_OQ)); }
    static unsigned equal(Vector a, Vector b) { return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_EQ_OQ)); }
    static Vector where_less(Vector a, Vector b, Vector yes, Vector no) {
        return _mm256_blendv_pd(no, yes, _mm256_cmp_pd(a, b, _CMP_LT_OQ));
    }
    static Vector where_equal(Vector a, Vector b, Vector yes, Vector no) {
        return _mm256_blendv_pd(no, yes, _mm256_cmp_pd(a, b, _CMP_EQ_OQ));
    }
    static double lowest(Vector v) {
        const __m128d half = _mm_min_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
        return _mm_cvtsd_f64(_mm_min_sd(half, _mm_unpackhi_pd(half, half)));
    }
    static std::int32_t lowest(Whole v) {
        const auto all = reinterpret_cast<__m256i>(v);
        __m128i half = _mm_min_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        half = _mm_min_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(1, 0, 3, 2)));
        return _mm_cvtsi128_si32(_mm_min_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(2, 3, 0, 1))));
    }
    static Vector power_of_two(Vector v) {
        const __m256i bits = _mm256_add_epi64(_mm256_castpd_si256(v), _mm256_set1_epi64x(1023));
        return _mm256_castsi256_pd(_mm256_slli_epi64(bits, 52));
    }
};
#endif

#if defined(__AVX512F__)
struct Avx512 {
    static constexpr std::size_t width = 8;
    using Vector = __m512d;
    typedef std::int32_t Whole __attribute__((vector_size(64)));
    static Vector load(const double* p) { return _mm512_loadu_pd(p); }
    static void store(double* p, Vector v) { _mm512_storeu_pd(p, v); }
    static Vector fill(double v) { return _mm512_set1_pd(v); }
    static Vector iota() { return _mm512_set_pd(7, 6, 5, 4, 3, 2, 1, 0); }
    static Vector add(Vector a, Vector b) { return _mm512_add_pd(a, b); }
    static Vector subtract(Vector a, Vector b) { return _mm512_sub_pd(a, b); }
    static Vector multiply(Vector a, Vector b) { return _mm512_mul_pd(a, b); }
    static Vector fused(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
    static Vector min(Vector a, Vector b) { return _mm512_min_pd(a, b); }
    static Vector max(Vector a, Vector b) { return _mm512_max_pd(a, b); }
    static unsigned less(Vector a, Vector b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
    static unsigned equal(Vector a, Vector b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
    static Vector where_less(Vector a, Vector b, Vector yes, Vector no) {
        return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), no, yes);
    }
    static Vector where_equal(Vector a, Vector b, Vector yes, Vector no) {
        return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ), no, yes);
    }
    static double lowest(Vector v) { return _mm512_reduce_min_pd(v); }
    static std::int32_t lowest(Whole v) { return _mm512_reduce_min_epi32(reinterpret_cast<__m512i>(v)); }
    static Vector power_of_two(Vector v) {
        const __m512i bits = _mm512_add_epi64(_mm512_castpd_si512(v), _mm512_set1_epi64(1023));
        return _mm512_castsi512_pd(_mm512_slli_epi64(bits, 52));
    }
};
#endif

}  // namespace spadeful
