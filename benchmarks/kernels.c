/* Five kernels of `learners` again, in C: what the compiled Python is measured against.
 *
 * The same algorithms in the same forms, on the same arrays: see learners/cbr.py, cbr_diag.py, loam_ilsc.py,
 * loam_ada.py and fofo.py, with settings as benchmarks/native.py passes them. Buffers are first in, first out. Vectors
 * are of eight float64 as there, but the compiler may fuse a multiplication with an addition, which ours may not.
 * `p` is the next multiple of 8 from `dim`. Each function learns n rows and returns how many steps it made.
 */

#include <math.h>
#include <string.h>

typedef double lanes __attribute__((vector_size(64), aligned(8)));
typedef const double *restrict in;
typedef double *restrict out;

#define AT(a, j) (*(lanes *)((a) + (j)))
#define MANY (1L << 12) /* columns at most */

static inline double total(lanes v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* a.b where both are padded */
static inline double dot(in a, in b, long p) {
    lanes s = {0};
    for (long j = 0; j < p; j += 8) s += AT(a, j) * AT(b, j);
    return total(s);
}

/* a.b of any length */
static inline double dot_of(in a, in b, long n) {
    long whole = n - n % 8;
    lanes s = {0};
    double rest = 0;
    for (long j = 0; j < whole; j += 8) s += AT(a, j) * AT(b, j);
    for (long j = whole; j < n; j++) rest += a[j] * b[j];
    return total(s) + rest;
}

/* alpha, beta of learners/confidence.py */
static inline double coefficients(double m, double v, double cap, double phi, double *beta) {
    double squared = phi * phi, psi = 1 + 0.5 * squared, zeta = 1 + squared, over, under;
    if (m > 0 && m * m >= squared * v) return 0;
    double r = sqrt(0.25 * m * m * squared * squared + v * squared * zeta);
    if (m > 0) {
        over = squared - m / v * m;
        under = m * psi + r;
    } else {
        over = r - m * psi;
        under = v * zeta;
    }
    if (!(over > 0)) return 0;
    double alpha = over >= cap * under ? cap : over / under;
    double q = alpha * v * phi, twice = q + sqrt(q * q + 4 * v);
    *beta = alpha * phi * twice / (2 * v + q * twice);
    return alpha;
}

/* u = S z; where g is given, after S -= g g^T */
static void multiply(double *restrict S, long dim, long p, in g, in z, out u) {
    for (long j = 0; j < p; j += 8) AT(u, j) = (lanes){0};
    for (long i = 0; i < dim; i += 4) {
        double *restrict r0 = S + i * p, *restrict r1 = r0 + p, *restrict r2 = r1 + p, *restrict r3 = r2 + p;
        lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        long first = i - i % 8;
        for (long j = first; j < p; j += 8) {
            lanes e0 = AT(r0, j), e1 = AT(r1, j), e2 = AT(r2, j), e3 = AT(r3, j);
            if (g) {
                lanes gj = AT(g, j);
                AT(r0, j) = e0 -= g[i] * gj;
                AT(r1, j) = e1 -= g[i + 1] * gj;
                AT(r2, j) = e2 -= g[i + 2] * gj;
                AT(r3, j) = e3 -= g[i + 3] * gj;
            }
            AT(u, j) += (z[i] * e0 + z[i + 1] * e1) + (z[i + 2] * e2 + z[i + 3] * e3);
            if (j == first) continue;
            lanes zj = AT(z, j);
            s0 += e0 * zj;
            s1 += e1 * zj;
            s2 += e2 * zj;
            s3 += e3 * zj;
        }
        u[i] += total(s0);
        u[i + 1] += total(s1);
        u[i + 2] += total(s2);
        u[i + 3] += total(s3);
    }
}

static void downdate(double *restrict S, long dim, long p, in g) {
    for (long i = 0; i < dim; i++)
        for (long j = i - i % 8; j < p; j += 8) AT(S + i * p, j) -= g[i] * AT(g, j);
}

static inline long smaller(long a, long b) { return a < b ? a : b; }

long cbr(long n, long dim, long p, long capacity, in X, in y, in weight, double C, double phi, out scores, out mean,
         out S, out buffer, out bounds, long *seen) {
    static double mu[MANY] __attribute__((aligned(64))), variances[MANY] __attribute__((aligned(64)));
    static double x[MANY] __attribute__((aligned(64))), s[MANY] __attribute__((aligned(64)));
    static double z[MANY] __attribute__((aligned(64))), u[MANY] __attribute__((aligned(64)));
    static double g[MANY] __attribute__((aligned(64)));
    double rounding = ldexp(1, -50) * (p + capacity);
    long steps = 0, pending = 0;
    memset(x, 0, sizeof x);
    memset(mu, 0, sizeof mu);
    for (long i = 0; i < p; i++) variances[i] = i < dim ? S[i * p + i] : 1;
    memcpy(mu, mean, dim * sizeof(double));
    for (long t = 0; t < n; t++) {
        memcpy(x, X + t * dim, dim * sizeof(double));
        scores[t] = dot(x, mu, p);
        long own = y[t] > 0, slot = seen[own]++ % capacity;
        double cap = C * weight[t], xx = dot(x, x, p), xs = xx;
        long others = cap > 0 ? smaller(seen[1 - own], capacity) : 0;
        if (others > 0) {
            multiply(S, dim, p, pending ? g : NULL, x, s);
            pending = 0;
            xs = dot(x, s, p);
        }
        for (long k = 0; k < others; k++) {
            double *b = buffer + ((1 - own) * capacity + k) * p, *bound = bounds + (1 - own) * capacity + k;
            lanes lm = {0}, lv = {0}, lz = {0};
            for (long j = 0; j < p; j += 8) {
                lanes zj = AT(x, j) - AT(b, j);
                AT(z, j) = zj;
                lm += zj * AT(mu, j);
                lv += zj * AT(s, j);
                lz += zj * zj;
            }
            double m = y[t] * total(lm), zs = total(lv), noise = rounding * (xx + total(lz));
            if (m > 0 && m >= phi * sqrt(fmax(2 * zs - xs + *bound + noise, 0))) continue;
            multiply(S, dim, p, pending ? g : NULL, z, u);
            pending = 0;
            lanes lu = {0}, lx = {0};
            for (long j = 0; j < p; j += 8) {
                lu += AT(u, j) * AT(z, j);
                lx += AT(u, j) * AT(x, j);
            }
            double v = total(lu), xu = total(lx), beta;
            *bound = fmin(*bound, fmax(v - 2 * zs + xs, 0) + noise);
            if (v <= 0) continue;
            double alpha = coefficients(m, v, cap, phi, &beta);
            if (alpha == 0) continue;
            double root = sqrt(beta), xg = root * xu;
            long failing = 0;
            for (long i = 0; i < p; i++) {
                g[i] = root * u[i];
                failing += g[i] * g[i] >= variances[i];
            }
            if (failing) continue;
            pending = 1;
            steps++;
            xs -= xg * xg;
            for (long j = 0; j < p; j += 8) {
                AT(mu, j) += alpha * y[t] * AT(u, j);
                AT(s, j) -= xg * AT(g, j);
                AT(variances, j) -= AT(g, j) * AT(g, j);
            }
        }
        bounds[own * capacity + slot] = fmax(xs, 0) + rounding * xx;
        memcpy(buffer + (own * capacity + slot) * p, x, p * sizeof(double));
    }
    if (pending) downdate(S, dim, p, g);
    memcpy(mean, mu, dim * sizeof(double));
    return steps;
}

long cbr_diag(long n, long dim, long capacity, in X, in y, in weight, double C, double phi, out scores, out mu, out G,
              out values, long *restrict lengths, long *restrict seen) {
    static double z[MANY] __attribute__((aligned(64)));
    long whole = dim - dim % 8, steps = 0;
    for (long t = 0; t < n; t++) {
        in x = X + t * dim;
        scores[t] = dot_of(x, mu, dim);
        long own = y[t] > 0, slot = seen[own]++ % capacity;
        double cap = C * weight[t];
        long others = cap > 0 ? smaller(seen[1 - own], capacity) : 0;
        for (long k = 0; k < others; k++) {
            in b = values + ((1 - own) * capacity + k) * dim;
            lanes lm = {0}, lv = {0};
            double m = 0, v = 0, beta;
            for (long j = 0; j < whole; j += 8) {
                lanes zj = AT(x, j) - AT(b, j);
                AT(z, j) = zj;
                lv += zj * zj * AT(G, j);
                lm += zj * AT(mu, j);
            }
            for (long j = whole; j < dim; j++) {
                z[j] = x[j] - b[j];
                v += z[j] * z[j] * G[j];
                m += z[j] * mu[j];
            }
            m = y[t] * (m + total(lm));
            v += total(lv);
            if (v <= 0) continue;
            double alpha = coefficients(m, v, cap, phi, &beta);
            if (alpha == 0) continue;
            steps++;
            for (long j = 0; j < dim; j++) {
                double u = z[j] * G[j], left = G[j] - beta * u * u;
                mu[j] += alpha * y[t] * u;
                G[j] = left > 0 ? left : 0;
            }
        }
        memcpy(values + (own * capacity + slot) * dim, x, dim * sizeof(double));
        lengths[own * capacity + slot] = dim;
    }
    return steps;
}

long loam_ilsc(long n, long dim, long p, in X, in y, in weight, double lam, out scores, out w_out, out S, out energy,
               out sums, long *seen) {
    static double w[MANY] __attribute__((aligned(64))), xh[MANY] __attribute__((aligned(64)));
    static double u[MANY] __attribute__((aligned(64))), g[MANY] __attribute__((aligned(64)));
    static double x[MANY] __attribute__((aligned(64))), variances[MANY] __attribute__((aligned(64)));
    long steps = 0, pending = 0;
    memset(x, 0, sizeof x);
    memset(w, 0, sizeof w);
    memset(xh, 0, sizeof xh);
    memcpy(w, w_out, dim * sizeof(double));
    for (long i = 0; i < p; i++) variances[i] = i < dim ? S[i * p + i] : 1;
    for (long t = 0; t < n; t++) {
        memcpy(x, X + t * dim, dim * sizeof(double));
        scores[t] = dot(x, w, p);
        long own = y[t] > 0;
        seen[own]++;
        for (long j = 0; j < dim; j++) sums[own * dim + j] += x[j];
        if (!seen[1 - own] || weight[t] == 0) continue;
        double s = 1 / sqrt(2.0 * seen[own] / (seen[0] + seen[1])), share = 1.0 / seen[1 - own];
        in other = sums + (1 - own) * dim;
        for (long j = 0; j < dim; j++) xh[j] = s * y[t] * (x[j] - share * other[j]);
        multiply(S, dim, p, pending ? g : NULL, xh, u);
        pending = 0;
        double v = dot(xh, u, p);
        if (v < 0) continue;
        double k = weight[t] * v <= ldexp(1, 30) ? weight[t] : ldexp(1, 30) / v, f = k / (1 + k * v), root = sqrt(f);
        long failing = 0;
        for (long j = 0; j < p; j++) {
            g[j] = root * u[j];
            failing += g[j] * g[j] >= variances[j];
        }
        if (failing) continue;
        pending = 1;
        steps++;
        energy[0] += k * s * s;
        double step = f * (s - dot(xh, w, p));
        for (long j = 0; j < p; j += 8) {
            AT(w, j) += step * AT(u, j);
            AT(variances, j) -= AT(g, j) * AT(g, j);
        }
        double norm = lam * dot(w, w, p);
        if (norm > energy[0]) {
            double back = sqrt(energy[0] / norm);
            for (long j = 0; j < p; j++) w[j] *= back;
        }
    }
    if (pending) downdate(S, dim, p, g);
    memcpy(w_out, w, dim * sizeof(double));
    return steps;
}

long loam_ada(long n, long dim, in X, in y, in weight, double eta, double lam, double delta, out scores, out w, out h,
              out sums, long *seen) {
    long steps = 0;
    for (long t = 0; t < n; t++) {
        in x = X + t * dim;
        scores[t] = dot_of(x, w, dim);
        long own = y[t] > 0;
        seen[own]++;
        for (long j = 0; j < dim; j++) sums[own * dim + j] += x[j];
        if (!seen[1 - own] || weight[t] == 0) continue;
        steps++;
        in other = sums + (1 - own) * dim;
        double s = 1 / sqrt(2.0 * seen[own] / (seen[0] + seen[1])), share = 1.0 / seen[1 - own];
        double pull = s * y[t] * (s - s * y[t] * (scores[t] - share * dot_of(other, w, dim)));
        for (long j = 0; j < dim; j++) {
            double g = weight[t] * (lam * w[j] - pull * (x[j] - share * other[j]));
            h[j] += g * g;
            w[j] -= eta * g / (delta + sqrt(h[j]));
        }
    }
    return steps;
}

long fofo(long n, long dim, in X, in y, in weight, double c, out scores, out w, out bias, long *clock) {
    long steps = 0;
    for (long t = 0; t < n; t++) {
        in x = X + t * dim;
        double score = dot_of(x, w, dim) + bias[0];
        scores[t] = score;
        if (weight[t] == 0) continue;
        steps++;
        clock[0]++;
        double p = score >= 0 ? 1 / (1 + exp(-score)) : exp(score) / (1 + exp(score));
        double step = weight[t] * (c / sqrt(clock[0])) * ((y[t] > 0) - p);
        bias[0] += step;
        for (long j = 0; j < dim; j++) w[j] += step * x[j];
    }
    return steps;
}
