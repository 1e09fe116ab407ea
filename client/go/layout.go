package tensorplane

import v1 "github.com/tensorplane/tensorplane/client/go/tpv1"

// ownedIndices are, of each dim, the global indices that a rank holds, in the order of its block: the chunk rule of each
// placement, axis by axis. Dims are not negative.
func ownedIndices(shape []int64, mesh Mesh, placements []*v1.Placement, rank int) [][]int64 {
	owned := make([][]int64, len(shape))
	for dim, size := range shape {
		owned[dim] = span(0, size)
	}
	below := mesh.Ranks()
	for i, axis := range mesh {
		if axis.Size < 1 || i >= len(placements) {
			break
		}
		below /= axis.Size
		index := int64(rank / below % axis.Size)
		dim, kept := cut(placements[i], owned, int64(axis.Size), index)
		if dim >= 0 {
			owned[dim] = kept
		}
	}
	return owned
}

func span(begin, end int64) []int64 {
	indices := make([]int64, 0, end-begin)
	for ; begin < end; begin++ {
		indices = append(indices, begin)
	}
	return indices
}

// chunk is the chunk rule: ceil(n / ranks) elements each, the last ones less.
func chunk(n, ranks, index int64) (begin, end int64) {
	size := (n + ranks - 1) / ranks
	least := func(a, b int64) int64 {
		if a < b {
			return a
		}
		return b
	}
	return least(n, index*size), least(n, (index+1)*size)
}

// cut is the dim that a placement cuts and what the rank at `index` of an axis of `size` ranks keeps of it; -1: none.
func cut(placement *v1.Placement, owned [][]int64, size, index int64) (int, []int64) {
	dim := -1
	var lengths []int64 // of the parts, each cut on its own
	count := func(d int32) int64 {
		if d < 0 || int(d) >= len(owned) {
			return 0
		}
		dim = int(d)
		return int64(len(owned[d]))
	}
	switch kind := placement.GetKind().(type) {
	case *v1.Placement_Shard_:
		lengths = []int64{count(kind.Shard.GetDim())}
	case *v1.Placement_GroupShard_:
		lengths = []int64{count(kind.GroupShard.GetDim())}
		if groups := int64(kind.GroupShard.GetGroups()); groups > 0 && groups <= size {
			size, index = groups, index/(size/groups)
		}
	case *v1.Placement_StridedShard_:
		n, factor := count(kind.StridedShard.GetDim()), int64(kind.StridedShard.GetSplitFactor())
		for i := int64(0); i < factor; i++ {
			begin, end := chunk(n, factor, i)
			lengths = append(lengths, end-begin)
		}
	case *v1.Placement_InterleavedShard_:
		n, sum := count(kind.InterleavedShard.GetDim()), int64(0)
		for _, part := range kind.InterleavedShard.GetParts() {
			sum += part
		}
		for _, part := range kind.InterleavedShard.GetParts() {
			lengths = append(lengths, n/sum*part)
		}
	}
	if dim < 0 {
		return -1, nil
	}
	kept, first := []int64{}, int64(0)
	for _, length := range lengths {
		begin, end := chunk(length, size, index)
		kept = append(kept, owned[dim][first+begin:first+end]...)
		first += length
	}
	return dim, kept
}
