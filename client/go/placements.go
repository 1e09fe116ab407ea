package tensorplane

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// Axis is a named axis of a mesh.
type Axis struct {
	Name string
	Size int
}

// Mesh is a grid of ranks, outermost axis first.
type Mesh []Axis

// String is "dp=2,tp=2".
func (m Mesh) String() string {
	parts := make([]string, len(m))
	for i, axis := range m {
		parts[i] = fmt.Sprintf("%s=%d", axis.Name, axis.Size)
	}
	return strings.Join(parts, ",")
}

// Ranks is their number.
func (m Mesh) Ranks() int {
	ranks := 1
	for _, axis := range m {
		ranks *= axis.Size
	}
	return ranks
}

const placementForms = "R, S(dim), P(sum|avg|min|max|product), SS(dim,factor), IS(dim,parts), IS(dim,[a,b,...]), GS(dim,groups)"

var (
	cutForm     = regexp.MustCompile(`^(S|SS|GS|IS)\(\s*(-?\d+)\s*(?:,\s*(-?\d+)\s*)?\)$`)
	ratioForm   = regexp.MustCompile(`^IS\(\s*(-?\d+)\s*,\s*\[([\d\s,]+)\]\s*\)$`)
	partialForm = regexp.MustCompile(`^P\(\s*(sum|avg|min|max|product)\s*\)$`)
	axisForm    = regexp.MustCompile(`^\s*(\w+)\s*=\s*(\d+)\s*$`)
)

// parseMesh reads "dp=2,tp=2"; "" has no axes.
func parseMesh(text string) (*v1.Mesh, error) {
	mesh := &v1.Mesh{}
	if strings.TrimSpace(text) == "" {
		return mesh, nil
	}
	for _, part := range strings.Split(text, ",") {
		found := axisForm.FindStringSubmatch(part)
		var size int64
		var err error
		if found != nil {
			size, err = strconv.ParseInt(found[2], 10, 32)
		}
		if found == nil || err != nil {
			return nil, errorf(codes.InvalidArgument, "bad mesh %.128q; expected NAME=SIZE[,NAME=SIZE...] as in dp=2,tp=2", text)
		}
		mesh.Axes = append(mesh.Axes, &v1.MeshAxis{Name: found[1], Size: int32(size)})
	}
	return mesh, nil
}

func meshFromProto(proto *v1.Mesh) Mesh {
	mesh := Mesh{}
	for _, axis := range proto.GetAxes() {
		mesh = append(mesh, Axis{axis.GetName(), int(axis.GetSize())})
	}
	return mesh
}

func parsePlacement(text string) (*v1.Placement, error) {
	word := strings.TrimSpace(text)
	bad := errorf(codes.InvalidArgument, "bad placement %.64q; known forms: %s", word, placementForms)
	if word == "R" {
		return &v1.Placement{Kind: &v1.Placement_Replicate_{Replicate: &v1.Placement_Replicate{}}}, nil
	}
	if found := partialForm.FindStringSubmatch(word); found != nil {
		op := v1.Placement_Partial_Op(v1.Placement_Partial_Op_value["OP_"+strings.ToUpper(found[1])])
		return &v1.Placement{Kind: &v1.Placement_Partial_{Partial: &v1.Placement_Partial{Op: op}}}, nil
	}
	if found := ratioForm.FindStringSubmatch(word); found != nil {
		cut := &v1.Placement_InterleavedShard{}
		for _, part := range strings.Split(found[2], ",") {
			size, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
			if err != nil {
				return nil, bad
			}
			cut.Parts = append(cut.Parts, size)
		}
		dim, err := strconv.ParseInt(found[1], 10, 32)
		if err != nil {
			return nil, bad
		}
		cut.Dim = int32(dim)
		return &v1.Placement{Kind: &v1.Placement_InterleavedShard_{InterleavedShard: cut}}, nil
	}
	found := cutForm.FindStringSubmatch(word)
	if found == nil || (found[1] == "S") != (found[3] == "") {
		return nil, bad
	}
	dim, err := strconv.ParseInt(found[2], 10, 32)
	if err != nil {
		return nil, bad
	}
	if found[1] == "S" {
		return &v1.Placement{Kind: &v1.Placement_Shard_{Shard: &v1.Placement_Shard{Dim: int32(dim)}}}, nil
	}
	count, err := strconv.ParseInt(found[3], 10, 32)
	if err != nil || (found[1] == "IS" && (count < 0 || count > 1<<16)) {
		return nil, bad
	}
	switch found[1] {
	case "SS":
		return &v1.Placement{Kind: &v1.Placement_StridedShard_{
			StridedShard: &v1.Placement_StridedShard{Dim: int32(dim), SplitFactor: int32(count)}}}, nil
	case "GS":
		return &v1.Placement{Kind: &v1.Placement_GroupShard_{
			GroupShard: &v1.Placement_GroupShard{Dim: int32(dim), Groups: int32(count)}}}, nil
	}
	cut := &v1.Placement_InterleavedShard{Dim: int32(dim)}
	for ; count > 0; count-- {
		cut.Parts = append(cut.Parts, 1)
	}
	return &v1.Placement{Kind: &v1.Placement_InterleavedShard_{InterleavedShard: cut}}, nil
}

// parsePlacements reads "dp=R,tp=S(0)".
func parsePlacements(text string) (map[string]*v1.Placement, error) {
	named := map[string]*v1.Placement{}
	if strings.TrimSpace(text) == "" {
		return named, nil
	}
	for _, part := range splitOutside(text) {
		axis, form, equals := strings.Cut(part, "=")
		axis = strings.TrimSpace(axis)
		if !equals || axis == "" {
			return nil, errorf(codes.InvalidArgument, "bad placements %.128q; expected AXIS=PLACEMENT[,AXIS=PLACEMENT...]", text)
		}
		if _, twice := named[axis]; twice {
			return nil, errorf(codes.InvalidArgument, "mesh axis %s is placed twice", axis)
		}
		placement, err := parsePlacement(form)
		if err != nil {
			return nil, err
		}
		named[axis] = placement
	}
	return named, nil
}

// splitOutside splits at commas outside of brackets.
func splitOutside(text string) []string {
	var parts []string
	depth, begin := 0, 0
	for i, letter := range text {
		switch letter {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				parts, begin = append(parts, text[begin:i]), i+1
			}
		}
	}
	return append(parts, text[begin:])
}

func placementText(proto *v1.Placement) string {
	switch kind := proto.GetKind().(type) {
	case *v1.Placement_Shard_:
		return fmt.Sprintf("S(%d)", kind.Shard.GetDim())
	case *v1.Placement_Partial_:
		return fmt.Sprintf("P(%s)", strings.ToLower(strings.TrimPrefix(kind.Partial.GetOp().String(), "OP_")))
	case *v1.Placement_StridedShard_:
		return fmt.Sprintf("SS(%d,%d)", kind.StridedShard.GetDim(), kind.StridedShard.GetSplitFactor())
	case *v1.Placement_GroupShard_:
		return fmt.Sprintf("GS(%d,%d)", kind.GroupShard.GetDim(), kind.GroupShard.GetGroups())
	case *v1.Placement_InterleavedShard_:
		parts, equal := kind.InterleavedShard.GetParts(), true
		texts := make([]string, len(parts))
		for i, part := range parts {
			texts[i], equal = strconv.FormatInt(part, 10), equal && part == 1
		}
		ratio := "[" + strings.Join(texts, ",") + "]"
		if equal {
			ratio = strconv.Itoa(len(parts))
		}
		return fmt.Sprintf("IS(%d,%s)", kind.InterleavedShard.GetDim(), ratio)
	}
	return "R"
}

// placementsText is "dp=R,tp=S(0)".
func placementsText(mesh Mesh, protos []*v1.Placement) string {
	var parts []string
	for i, axis := range mesh {
		if i < len(protos) {
			parts = append(parts, axis.Name+"="+placementText(protos[i]))
		}
	}
	return strings.Join(parts, ",")
}
