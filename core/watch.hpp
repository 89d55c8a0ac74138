// Long loops ask now and then whether they should stop.
#pragma once
#include <cstdint>

namespace spadeful {

struct Interrupted {};

class Watch {
public:
    virtual ~Watch() = default;
    // Called once per unit of work (a pass over one row or column).
    void tick() {
        if ((++ticks_ & 0xff) == 0) check();
    }
    void check() {
        if (stop()) throw Interrupted{};
    }

protected:
    virtual bool stop() = 0;

private:
    std::uint32_t ticks_ = 0;
};

}  // namespace spadeful
