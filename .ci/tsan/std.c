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

// A `Condvar` lets its mutex go and locks it again in std. WAIT and WAIT_TIMEOUT are the names of its functions.
void __tsan_release(void *);
void real_wait(void *, void *) __asm__("__real_" WAIT);
void wrap_wait(void *, void *) __asm__("__wrap_" WAIT);
_Bool real_wait_timeout(void *, void *, unsigned long, unsigned) __asm__("__real_" WAIT_TIMEOUT);
_Bool wrap_wait_timeout(void *, void *, unsigned long, unsigned) __asm__("__wrap_" WAIT_TIMEOUT);

void wrap_wait(void *condvar, void *mutex) {
    __tsan_release(mutex);
    real_wait(condvar, mutex);
    __tsan_acquire(mutex);
}

_Bool wrap_wait_timeout(void *condvar, void *mutex, unsigned long seconds, unsigned nanoseconds) {
    __tsan_release(mutex);
    _Bool woken = real_wait_timeout(condvar, mutex, seconds, nanoseconds);
    __tsan_acquire(mutex);
    return woken;
}
