package tensorplane

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

func TestPlacementsReadBackAsTheyAreWritten(t *testing.T) {
	mesh := Mesh{{"a", 2}, {"b", 2}, {"c", 2}, {"d", 4}, {"e", 2}, {"f", 2}}
	text := "a=R,b=S(-1),c=P(avg),d=GS(0,2),e=IS(1,[8,2,2]),f=IS(0,3)"
	named, err := parsePlacements(" " + strings.ReplaceAll(text, ",2", ", 2"))
	if err != nil {
		t.Fatal(err)
	}
	var protos []*v1.Placement
	for _, axis := range mesh {
		protos = append(protos, named[axis.Name])
	}
	if got := placementsText(mesh, protos); got != text {
		t.Errorf("got %s", got)
	}
	if parts := named["e"].GetInterleavedShard().GetParts(); !reflect.DeepEqual(parts, []int64{8, 2, 2}) {
		t.Errorf("parts %v", parts)
	}
	for _, bad := range []string{"tp", "tp=X", "tp=S()", "tp=S(0,2)", "tp=SS(0)", "tp=P(mean)", "=R", "tp=R,tp=R", "tp=S(99999999999)"} {
		if _, err := parsePlacements(bad); Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestMeshes(t *testing.T) {
	proto, err := parseMesh("dp=2, tp=3")
	if err != nil {
		t.Fatal(err)
	}
	if mesh := meshFromProto(proto); mesh.String() != "dp=2,tp=3" || mesh.Ranks() != 6 {
		t.Errorf("got %v", mesh)
	}
	for _, bad := range []string{"tp", "tp=two", "=2", "tp=2,,"} {
		if _, err := parseMesh(bad); Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Values worked out by hand from the chunk rule: ceil(n / ranks) elements each.
func TestOwnedIndices(t *testing.T) {
	for _, c := range []struct {
		n, ranks  int64
		placement string
		want      [][]int64
	}{
		{5, 4, "S(0)", [][]int64{{0, 1}, {2, 3}, {4}, {}}},
		{5, 2, "SS(0,2)", [][]int64{{0, 1, 3}, {2, 4}}},              // chunks of 3 and 2, each cut in two
		{6, 2, "IS(0,[2,1])", [][]int64{{0, 1, 4}, {2, 3, 5}}},       // parts of 4 and 2
		{4, 4, "GS(0,2)", [][]int64{{0, 1}, {0, 1}, {2, 3}, {2, 3}}}, // two groups of neighbours
		{3, 2, "R", [][]int64{{0, 1, 2}, {0, 1, 2}}},
	} {
		placement, err := parsePlacement(c.placement)
		if err != nil {
			t.Fatal(err)
		}
		mesh := Mesh{{"tp", int(c.ranks)}}
		for rank, want := range c.want {
			if got := ownedIndices([]int64{c.n}, mesh, []*v1.Placement{placement}, rank)[0]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s of %d, rank %d: %v", c.placement, c.n, rank, got)
			}
		}
	}
	s := func(dim int32) *v1.Placement {
		return &v1.Placement{Kind: &v1.Placement_Shard_{Shard: &v1.Placement_Shard{Dim: dim}}}
	}
	got := ownedIndices([]int64{5, 2}, Mesh{{"dp", 2}, {"tp", 2}}, []*v1.Placement{s(0), s(0)}, 1) // 0 1 2, then cut in two
	if !reflect.DeepEqual(got, [][]int64{{2}, {0, 1}}) {
		t.Errorf("two axes on one dim: %v", got)
	}
}

func TestChunks(t *testing.T) {
	big := make([]byte, chunkBytes+9)
	copy(big[chunkBytes:], "123456789")
	var chunks []*v1.Chunk
	var seen []int64
	err := sendChunks([][]byte{{}, big}, func(done, total int64) { seen = append(seen, done) },
		func(chunk *v1.Chunk) error { chunks = append(chunks, chunk); return nil })
	if err != nil || len(chunks) != 2 {
		t.Fatal(err, len(chunks))
	}
	last := chunks[1]
	if last.Index != 1 || last.Offset != chunkBytes || last.Crc32 != 0xCBF43926 { // the check value of CRC-32
		t.Errorf("index %d offset %d crc %x", last.Index, last.Offset, last.Crc32)
	}
	if !reflect.DeepEqual(seen, []int64{0, chunkBytes, chunkBytes + 9}) {
		t.Errorf("progress %v", seen)
	}
	blocks := []*block{{what: "t", shape: []int64{0}, item: 1}, {what: "t", shape: []int64{chunkBytes + 9}, item: 1}}
	if err := receive(blocks, last); Code(err) != codes.Internal {
		t.Errorf("out of order: %v", err)
	}
	if err := receive(blocks, chunks[0]); err != nil {
		t.Fatal(err)
	}
	if err := checkWhole(blocks); Code(err) != codes.DataLoss {
		t.Errorf("not whole: %v", err)
	}
	wrong := proto.Clone(last).(*v1.Chunk)
	wrong.Crc32++
	if err := receive(blocks, wrong); Code(err) != codes.DataLoss {
		t.Errorf("checksum: %v", err)
	}
	if err := receive(blocks, last); err != nil || checkWhole(blocks) != nil || !bytes.Equal(blocks[1].data, big) {
		t.Error(err)
	}
	if err := receive(blocks, &v1.Chunk{Index: 2}); Code(err) != codes.Internal {
		t.Errorf("no block: %v", err)
	}
}

func TestTensors(t *testing.T) {
	tensor := NewTensor([]float32{1, -2}, 2)
	if !bytes.Equal(tensor.Data, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}) {
		t.Errorf("bytes %x", tensor.Data)
	}
	if _, err := Values[int64](tensor); Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if _, err := Values[float32](NewTensor([]float32{1}, 3)); Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if got, err := Values[bool](NewTensor([]bool{true, false}, 1, 2)); err != nil || !reflect.DeepEqual(got, []bool{true, false}) {
		t.Error(got, err)
	}
	// Halfway cases go to even; one above goes up; NaN stays NaN.
	half := NewBFloat16([]float32{math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000),
		math.Float32frombits(0x3f808001), float32(math.NaN()), float32(math.Inf(-1))}, 5)
	if !bytes.Equal(half.Data[:6], []byte{0x80, 0x3f, 0x82, 0x3f, 0x81, 0x3f}) {
		t.Errorf("bits %x", half.Data)
	}
	if got, err := half.Float32s(); err != nil || got[0] != 1 || got[3] == got[3] || !math.IsInf(float64(got[4]), -1) {
		t.Error(got, err)
	}
	whole := join([]*block{{offset: []int64{0, 1}, shape: []int64{2, 1}, item: 1, data: []byte{1, 2}},
		{offset: []int64{0, 0}, shape: []int64{2, 1}, item: 1, data: []byte{3, 4}}}, U8, []int64{2, 2})
	if !bytes.Equal(whole.Data, []byte{3, 1, 4, 2}) {
		t.Errorf("joined %v", whole.Data)
	}
}

func TestReadSubmission(t *testing.T) {
	folder := t.TempDir()
	text := `name: "m" weights_file: "w.safetensors" weights { key: "a" value { concat { parts { file { path: "b" } } } } }`
	if err := os.WriteFile(filepath.Join(folder, "m.textproto"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	submission, err := ReadSubmission(filepath.Join(folder, "m.textproto"))
	if err != nil {
		t.Fatal(err)
	}
	if submission.GetWeightsFile() != folder+"/w.safetensors" {
		t.Error(submission.GetWeightsFile())
	}
	if path := submission.GetWeights()["a"].GetConcat().GetParts()[0].GetFile().GetPath(); path != folder+"/b" {
		t.Error(path)
	}
	data, err := submissionBytes(submission)
	if err != nil || os.WriteFile(filepath.Join(folder, "m.pb"), data, 0o644) != nil {
		t.Fatal(err)
	}
	if again, err := ReadSubmission(filepath.Join(folder, "m.pb")); err != nil || !proto.Equal(again, submission) {
		t.Error(again, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "m.json"), []byte(`{"name": "m", "nothing": 1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSubmission(filepath.Join(folder, "m.json")); Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "nothing") {
		t.Error(err)
	}
	for path, code := range map[string]codes.Code{"/nowhere/m.pb": codes.NotFound, "m.txt": codes.InvalidArgument} {
		if _, err := ReadSubmission(path); Code(err) != code {
			t.Error(path, err)
		}
	}
}
