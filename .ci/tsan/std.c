// What ThreadSanitizer does not see of a standard library that was not built for it. The linker's --wrap
// brings the calls here.

// `Arc` decrements its count by a release, and fences with an acquire before it frees. The sanitizer does not
// model fences; a std built for it loads the count instead, but stable's was not. So each decrement by a
// release acquires, too.
enum { RELEASE = 3, ACQUIRE_RELEASE = 4 };

unsigned long __real___tsan_atomic64_fetch_sub(volatile unsigned long *, unsigned long, int);

unsigned long __wrap___tsan_atomic64_fetch_sub(volatile unsigned long *count, unsigned long by, int order) {
    return __real___tsan_atomic64_fetch_sub(count, by, order == RELEASE ? ACQUIRE_RELEASE : order);
}

// A `Mutex` that is free is locked, and each is unlocked, by code that is compiled into the caller; one that
// must be waited for is locked in std. LOCK_CONTENDED is the name of that function.
void __tsan_acquire(void *);
void real_lock_contended(void *) __asm__("__real_" LOCK_CONTENDED);
void wrap_lock_contended(void *) __asm__("__wrap_" LOCK_CONTENDED);

void wrap_lock_contended(void *mutex) {
    real_lock_contended(mutex);
    __tsan_acquire(mutex);
}
