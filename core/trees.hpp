// Rows that hang from each other: the column of a row that hangs is just as good for the row that it hangs from, so that a
// search that reaches the one has reached the other too, at the same distance. Searches leave such trees behind, and raise
// prices of all of a tree alike, so that later ones find whole branches at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spadeful {

class Trees {
public:
    static constexpr std::int32_t none = -1;

    void clear(std::size_t rows) { nodes_.assign(rows, Node{}); }
    std::int32_t parent(std::size_t row) const { return nodes_[row].parent; }
    // The first of the rows that hang from one, and the one after another.
    std::int32_t first(std::size_t row) const { return nodes_[row].first; }
    std::int32_t next(std::size_t row) const { return nodes_[row].next; }

    // Hangs a row, with all that hang from it, from another or from none.
    void hang(std::size_t row, std::int32_t parent) {
        Node& node = nodes_[row];
        if (node.parent >= 0) {
            (node.before >= 0 ? nodes_[node.before].next : nodes_[node.parent].first) = node.next;
            if (node.next >= 0) nodes_[node.next].before = node.before;
        }
        node.parent = parent;
        node.before = node.next = none;
        if (parent < 0) return;
        node.next = nodes_[parent].first;
        if (node.next >= 0) nodes_[node.next].before = static_cast<std::int32_t>(row);
        nodes_[parent].first = static_cast<std::int32_t>(row);
    }

private:
    struct Node {
        std::int32_t parent = none, first = none, next = none, before = none;
    };
    std::vector<Node> nodes_;
};

}  // namespace spadeful
