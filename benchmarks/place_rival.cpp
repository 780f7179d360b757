// The rival of `best_fit`: the textbook C++ allocator, free blocks in a std::set by (size, address), all blocks in a
// std::map by address, coalescing at once.
//
//   place_rival FILE REPEATS    FILE: int64 capacity, alignment, units, operations, then (unit, size) pairs; size 0 frees
//
// Prints the seconds of each repeat, and a last line with a hash of all addresses.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

using i64 = int64_t;

struct BestFit {
    struct Block { i64 size; bool free; };
    std::map<i64, Block> blocks;
    std::set<std::pair<i64, i64>> spare;
    i64 align;

    BestFit(i64 capacity, i64 align) : align(align) {
        blocks[0] = {capacity, true};
        spare.insert({capacity, 0});
    }
    i64 alloc(i64 size) {
        size = (size + align - 1) / align * align;
        auto found = spare.lower_bound({size, -1});
        if (found == spare.end()) return -1;
        auto [room, addr] = *found;
        spare.erase(found);
        auto at = blocks.find(addr);
        at->second = {size, false};
        if (room > size) {
            blocks.emplace_hint(std::next(at), addr + size, Block{room - size, true});
            spare.insert({room - size, addr + size});
        }
        return addr;
    }
    void free(i64 addr) {
        auto at = blocks.find(addr);
        at->second.free = true;
        auto next = std::next(at);
        if (next != blocks.end() && next->second.free) {
            spare.erase({next->second.size, next->first});
            at->second.size += next->second.size;
            blocks.erase(next);
        }
        if (at != blocks.begin()) {
            auto prev = std::prev(at);
            if (prev->second.free) {
                spare.erase({prev->second.size, prev->first});
                prev->second.size += at->second.size;
                blocks.erase(at);
                at = prev;
            }
        }
        spare.insert({at->second.size, at->first});
    }
};

int main(int argc, char** argv) {
    FILE* in = argc == 3 ? fopen(argv[1], "rb") : nullptr;
    i64 head[4];
    if (!in || fread(head, 8, 4, in) != 4) return 2;
    std::vector<i64> ops(2 * head[3]);
    if (fread(ops.data(), 16, head[3], in) != size_t(head[3])) return 2;
    uint64_t hash = 0;
    for (int repeat = 0; repeat < atoi(argv[2]); ++repeat) {
        BestFit heap(head[0], head[1]);
        std::vector<i64> addr(head[2], -1);
        hash = 0;
        auto start = std::chrono::steady_clock::now();
        for (i64 i = 0; i < head[3]; ++i) {
            i64 unit = ops[2 * i], size = ops[2 * i + 1];
            if (size) {
                addr[unit] = heap.alloc(size);
                hash = hash * 31 + uint64_t(addr[unit]);
            } else if (addr[unit] >= 0) {
                heap.free(addr[unit]);
            }
        }
        printf("%.9f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    printf("%llu\n", (unsigned long long)(hash >> 1));
}
